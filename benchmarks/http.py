"""Tasks over HTTP: cycles of publish, claim and resolve, by several servers, beside the same statements without them.

``python -m benchmarks.http [--cycles 600] [--clients 16] [--many 64] [--repeat 3] [--only NAME]``

The servers, gunicorn, granian and uvicorn, are installed into var/peers if they are missing.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, own_cpu, print_table, server_cpu, spread
from benchmarks.peers.install import CACHE, Unavailable, installed_apart
from benchmarks.queues import BARE, CYCLE, bare_cycles, cycles
from benchmarks.report import note, print_targets, verdict

SERVERS = ("gunicorn==27.0.1", "granian==2.8.7", "uvicorn[standard]==0.54.0")
PATIENCE = 60.0
REQUESTS = ("publish", "claim", "resolve")
# Seconds; the answer of a request that takes longer counts as an error.
TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server with its settings. ``connections``: the changes of the site's ``DATABASES`` entry.

    ``alone``: it has the API and nothing else of the site, no sessions either.
    """

    name: str
    command: tuple[str, ...]
    connections: dict[str, Any] = field(default_factory=dict)
    alone: bool = False


CONFIG = str(Path(__file__).parents[1] / "deploy" / "gunicorn" / "gunicorn.conf.py")
GUNICORN = ("gunicorn", "project.wsgi", "--log-level", "error", "--bind", "127.0.0.1:{port}", "--config", CONFIG)
GRANIAN = (
    "granian", "project.wsgi:application", "--interface", "wsgi", "--log-level", "error", "--host", "127.0.0.1",
    "--port", "{port}", "--workers", "2", "--blocking-threads", "8",
)  # fmt: skip
UVICORN = ("uvicorn", "project.asgi:application", "--log-level", "error", "--port", "{port}", "--workers", "2")
KEPT, POOL = {"CONN_MAX_AGE": 600}, {"OPTIONS": {"pool": {"min_size": 2, "max_size": 8, "timeout": 30}}}
CASES = (
    Server("gunicorn, 2 x 8 threads, persistent connections, the API alone", GUNICORN, KEPT, alone=True),
    Server("granian, 2 x 8 threads, persistent connections, the API alone", GRANIAN, KEPT, alone=True),
    Server("gunicorn, 2 x 8 threads, persistent connections", GUNICORN, KEPT),
    Server("gunicorn, 2 x 8 threads, pool", GUNICORN, POOL),
    Server("granian, 2 x 8 threads, persistent connections", GRANIAN, KEPT),
    Server("granian, 2 x 8 threads, pool", GRANIAN, POOL),
    Server("gunicorn, 2 x 8 threads, a connection a request", GUNICORN),
    Server("uvicorn, 2 processes, pool", UVICORN, POOL),
    Server("uvicorn, 2 processes, persistent connections", UVICORN, KEPT),
)


def main() -> None:
    """Measure and print."""
    quick = {"cycles": 20, "clients": 2, "many": 4}
    options = arguments(__doc__, quick=quick, extend=_only, cycles=600, clients=16, many=64)
    with database():
        from django.core.management import call_command

        from tasks.models import Consumer, Queue

        call_command("migrate", verbosity=0)
        Queue.objects.get_or_create(name="benchmark", defaults={"actions_elsewhere": True})
        consumer = Consumer(name="benchmark", all_queues=True, may_publish=True, may_claim=True)
        Consumer.objects.filter(name=consumer.name).delete()
        token = consumer.issue()
        consumer.save()
        count = options.cycles
        servers = [each for each in CASES if options.only in each.name and _is_installed()]
        python: dict[str, list[float]] = {BARE: [], CYCLE: []}
        found: dict[str, list[Measured]] = {each.name: [] for each in servers}
        for _ in range(options.repeat):
            for name, case in {BARE: bare_cycles, CYCLE: cycles}.items():
                python[name].append(count / case(count).seconds)
            for each in servers:
                found[each.name].append(measured(each, token, count, options.clients, options.many))
        _print(options, python, found)


def _is_installed() -> bool:
    """Return whether the servers can be installed; say why not."""
    try:
        installed_apart("servers", SERVERS, CACHE)
    except Unavailable as error:
        print(f"the servers are left out: {error}", file=sys.stderr)
        return False
    return True


def _only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="NAME", help="servers whose name has this")


@dataclass(slots=True)
class Measured:
    """One server: cycles per second of several clients, CPU ms per cycle, and ms of each request of one client."""

    rate: float
    python: float
    database: float
    client: float
    alone: dict[str, float]
    errors: int
    many_errors: int


def measured(server: Server, token: str, count: int, clients: int, many: int) -> Measured:
    """Start a server, warm it up, and measure one client, several and many."""
    with serving(server) as (port, pid):
        load(port, token, 10 * clients, clients)
        times, _ = load(port, token, max(count // 4, 10), 1)
        alone = {name: statistics.median(times[name]) * 1000 for name in REQUESTS}
        own, database, processes = own_cpu(), server_cpu(), cpu_of(pid)
        started = time.perf_counter()
        _, errors = load(port, token, count, clients)
        seconds = time.perf_counter() - started
        spent = [cpu_of(pid) - processes, server_cpu() - database, own_cpu() - own]
        _, many_errors = load(port, token, max(count, many), many)
        python, store, client = (1000 * each / count for each in spent)
        return Measured(count / seconds, python, store, client, alone, errors, many_errors)


@contextlib.contextmanager
def serving(server: Server) -> Iterator[tuple[int, int]]:
    """Run a server; give its port and the number of its first process."""
    folder = installed_apart("servers", SERVERS, CACHE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = str(Path(__file__).parents[1])
    module, *rest = (part.format(port=port) for part in server.command)
    variables = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "benchmarks.served_alone" if server.alone else "benchmarks.served",
        "BENCHMARK_DATABASE": json.dumps(server.connections),
        "PYTHONPATH": os.pathsep.join([root, str(folder)]),
    }
    process = subprocess.Popen([sys.executable, "-m", module, *rest], cwd=root, env=variables, start_new_session=True)
    try:
        _await(port, process)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.05)
    raise SystemExit(f"the server did not begin to listen within {PATIENCE:.0f} s")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of the processes of a session so far; 0 if they cannot be read."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                # Fields 6, 14 and 15 of proc(5)'s stat: the session, and the ticks in user and system mode.
                ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == pid else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def load(port: int, token: str, count: int, clients: int) -> tuple[dict[str, list[float]], int]:
    """Run cycles by clients at the same time; return the seconds of each request, and the number of errors."""
    shares = [count // clients + (number < count % clients) for number in range(clients)]
    with ThreadPoolExecutor(clients) as threads:
        work = partial(Client.work, port, token)
        done = list(threads.map(work, range(clients), shares))
    times: dict[str, list[float]] = defaultdict(list)
    for each, _ in done:
        for name, seconds in each.items():
            times[name] += seconds
    return times, sum(errors for _, errors in done)


class Client:
    """One program: a connection that it keeps, and nothing that costs much, since it runs on the same processors."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        self._socket: socket.socket | None = None
        self.times: dict[str, list[float]] = defaultdict(list)
        self.errors = 0

    @classmethod
    def work(cls, port: int, token: str, number: int, cycles: int) -> tuple[dict[str, list[float]], int]:
        """Run cycles as a worker with this number; return the times and the number of errors."""
        client = cls(port, token)
        for _ in range(cycles):
            try:
                client.cycle(f"bench-{number}")
            except (OSError, ValueError, LookupError) as error:
                print(f"  a request failed: {error!r}"[:300], file=sys.stderr)
                client.errors += 1
                client.close()
        client.close()
        return client.times, client.errors

    def cycle(self, worker: str) -> None:
        """Publish a task, claim one, and resolve it."""
        self.post("publish", "queues/benchmark/tasks", {"action": "nothing", "data": {"n": 7}})
        for claim in self.post("claim", "queues/benchmark/claims", {"worker": worker})["claims"]:
            end = {"token": claim["token"], "result": {"ok": True}}
            self.post("resolve", f"tasks/{claim['task']['id']}/claim/resolve", end)

    def post(self, name: str, path: str, body: dict[str, Any]) -> Any:
        """Send a request and return the JSON of its answer; raise ``ValueError`` if it is refused."""
        began = time.perf_counter()
        text = json.dumps(body).encode()
        head = f"POST /api/{path} HTTP/1.1\r\n{self._head}Content-Length: {len(text)}\r\n\r\n"
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(head.encode() + text)
        status, answer = self._answer()
        self.times[name].append(time.perf_counter() - began)
        if status >= 400:
            raise ValueError(f"{status}: {answer[:200]!r}")
        return json.loads(answer)

    def _answer(self) -> tuple[int, bytes]:
        received = self._receive(b"")
        while b"\r\n\r\n" not in received:
            received = self._receive(received)
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        length = int(headers["content-length"])
        while len(body) < length:
            body = self._receive(body)
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split()[1]), body

    def _receive(self, so_far: bytes) -> bytes:
        if self._socket is None or not (more := self._socket.recv(65536)):
            raise OSError("the server closed the connection")
        return so_far + more

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _print(options: argparse.Namespace, python: dict[str, list[float]], found: dict[str, list[Measured]]) -> None:
    def cell(name: str, of: Callable[[Measured], float], digits: int) -> str:
        return spread([of(each) for each in found[name]], digits)

    clients, many = options.clients, options.many
    head = [
        "server", f"cycles/s, {clients} clients", "server CPU ms", "database CPU ms", "client CPU ms",
        f"errors at {clients}, {many}", *(f"{name}, ms at 1" for name in REQUESTS),
    ]  # fmt: skip
    rows = [[name, spread(rates), *[""] * 7] for name, rates in python.items()]
    for name, runs in found.items():
        rows.append([
            name, cell(name, lambda run: run.rate, 0), cell(name, lambda run: run.python, 2),
            cell(name, lambda run: run.database, 2), cell(name, lambda run: run.client, 2),
            f"{sum(run.errors for run in runs)}, {sum(run.many_errors for run in runs)}",
            *(cell(name, lambda run, at=at: run.alone[at], 2) for at in REQUESTS),  # type: ignore[misc]
        ])  # fmt: skip
    print_table(f"{options.cycles:,} cycles of publish, claim and resolve; CPU per cycle", head, rows)
    lines = []
    for name, rates in python.items():
        note(f"{name}: cycles/s", statistics.median(rates), less=False)
    for name, runs in found.items():
        for request in REQUESTS:
            note(f"{name}: {request}, ms at 1", statistics.median(run.alone[request] for run in runs), less=True)
        lines.append(verdict(f"{name}: cycles/s", statistics.median(run.rate for run in runs), 300))
        slowest = max(statistics.median(run.alone[at] for run in runs) for at in REQUESTS)
        lines.append(verdict(f"{name}: slowest request, ms at one client", slowest, 3, most=True))
        lines.append(verdict(f"{name}: errors", sum(run.errors + run.many_errors for run in runs), 0, most=True))
    print_targets(lines)


if __name__ == "__main__":
    main()
