"""One run of a peer: a store of its own on the measured server, its script, and the script's figures."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import psycopg

from benchmarks.harness import server_cpu
from benchmarks.peers import install
from benchmarks.peers.catalog import Case, Peer
from benchmarks.report import Spent

# Unique, so that two runs on one server affect each other only by their load.
DATABASE = f"stator_bench_peer_{os.getpid()}"


class Failed(Exception):
    """An installed peer did not run all jobs; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Told:
    """The cost of one run, and the jobs enqueued per second before it."""

    spent: Spent
    enqueued: float


@dataclass(frozen=True, slots=True)
class Store:
    """The store of a peer's jobs, and the CPU seconds of its server so far.

    ``variables``: for the peer's environment. They include the password, which is not in ``url``: every user of the
    machine can list the arguments of a process.
    """

    url: str
    cpu: Callable[[], float]
    settle: Callable[[], None]
    variables: dict[str, str] = field(default_factory=dict)


def run(peer: Peer, case: Case, jobs: int) -> Told:
    """Enqueue ``jobs`` jobs and let the peer's workers run them; raise ``Unavailable`` or ``Failed`` if it cannot."""
    command, variables = install.command(peer)
    command += ["{url}", str(jobs), "--processes", str(case.processes)]
    if case.size is not None:
        command += ["--size", str(case.size)]
    with STORES[peer.store]() as store, tempfile.TemporaryFile("w+") as errors:
        command[command.index("{url}")] = store.url
        with _script(command, variables | store.variables, errors) as process:
            enqueued = _answer(peer, process, errors)
            store.settle()
            server = store.cpu()
            process.stdin.write("\n")
            process.stdin.flush()
            drained = _answer(peer, process, errors)
            used = store.cpu() - server
        if drained["jobs"] != jobs:
            raise Failed(f"{drained['jobs']} of {jobs} jobs were run")
        return Told(Spent(drained["seconds"], drained["cpu"], used), jobs / enqueued["seconds"])


def enqueue(peer: Peer, jobs: int, *, each: bool) -> float:
    """Return how many jobs a peer enqueues per second, in bulk or one at a time; raise like :func:`run`."""
    command, variables = install.command(peer)
    with STORES[peer.store]() as store, tempfile.TemporaryFile("w+") as errors:
        command += [store.url, str(jobs), *(["--each"] if each else [])]
        with _script(command, variables | store.variables, errors) as process:
            return jobs / _answer(peer, process, errors)["seconds"]


@contextlib.contextmanager
def _script(command: list[str], variables: dict[str, str], errors: Any) -> Iterator[Any]:
    """Run the script; afterwards end it and its workers."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        family = [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.communicate()


def _answer(peer: Peer, process: Any, errors: Any) -> dict[str, float]:
    """Return the next line of JSON from the script."""
    text = process.stdout.readline()
    if text.startswith("{"):
        answer: dict[str, float] = json.loads(text)
        return answer
    process.wait(timeout=30)
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    raise Failed(lines[-1] if lines else f"its script ended with exit code {process.returncode}")


@contextlib.contextmanager
def postgresql_store() -> Iterator[Store]:
    """Create a database on the server of ``DATABASE_URL``, and drop it at the end."""
    from django.db import connection

    given = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{DATABASE}")
    password = {"PGPASSWORD": unquote(given.password)} if given.password else {}
    address = given._replace(netloc=f"{given.username}@{given.netloc.rpartition('@')[2]}") if password else given
    drop = f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"
    with connection.cursor() as cursor:
        cursor.execute(drop)
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        try:
            yield Store(address.geturl(), server_cpu, lambda: _vacuum(given.geturl()), password)
        finally:
            cursor.execute(drop)


def _vacuum(url: str) -> None:
    # The other benchmarks do this after filling too: the planner then knows the number of rows.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


@contextlib.contextmanager
def _redis() -> Iterator[Store]:
    """Run Redis with its default configuration in an empty folder: occasional snapshots, no write at once."""
    program, variables = install.redis_server()
    with tempfile.TemporaryDirectory(prefix="stator-bench-") as folder:
        port = _free_port()
        process = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder],
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_for(process, port)
            server = psutil.Process(process.pid)
            yield Store(f"redis://127.0.0.1:{port}/0", lambda: sum(server.cpu_times()[:2]), lambda: None)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait_for(process: Any, port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            raise install.Unavailable(f"redis-server ended with exit code {process.returncode}")
        threading.Event().wait(0.1)
    raise Failed("redis-server did not answer within 10 s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


STORES = {"postgresql": postgresql_store, "redis": _redis}
