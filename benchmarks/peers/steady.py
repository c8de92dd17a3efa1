"""The processes of a peer at a steady rate: one offers jobs, one runs them, and both say what they did each second."""

import json
import os
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from benchmarks.peers import install
from benchmarks.peers.catalog import Peer
from benchmarks.peers.run import Failed, Store

PATIENCE = 120


class Steady:
    """A peer that runs what is offered. ``claim_ms`` and ``enqueued`` are by the second of Unix time."""

    def __init__(self, peer: Peer, store: Store, places: int, work: float) -> None:
        self.claim_ms: defaultdict[int, list[float]] = defaultdict(list)
        self.enqueued: defaultdict[int, int] = defaultdict(int)
        self._command, variables = install.command(peer)
        self._command += [store.url, "0", "--size", str(places)]
        self._environment = {**os.environ, **variables, **store.variables}
        self._serve = ["--serve", f"{work:g}"]
        self._processes: list[tuple[subprocess.Popen[str], Any]] = []

    def install(self) -> None:
        """Create its tables."""
        done = subprocess.run(
            [*self._command, "--install"], env=self._environment, capture_output=True, text=True, check=False,
            timeout=PATIENCE,
        )  # fmt: skip
        if done.returncode:
            raise Failed(_last_line(done.stderr) or f"--install gave exit code {done.returncode}")

    @contextmanager
    def serving(self) -> Iterator["Steady"]:
        """Run a worker until the block ends."""
        with self._running(self._serve) as process:
            self._server = psutil.Process(process.pid)
            yield self

    def offering(self, rate: float) -> Any:
        """Offer so many jobs a second until the block ends."""
        return self._running(["--offer", f"{rate:g}"])

    @property
    def cpu(self) -> float:
        """The CPU seconds of the worker so far."""
        family = [self._server, *self._server.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in family)

    def check(self) -> None:
        """Raise ``Failed`` if one of the processes has ended."""
        for process, errors in self._processes:
            if process.poll() is not None:
                errors.seek(0)
                raise Failed(_last_line(errors.read()) or f"a process ended with exit code {process.returncode}")

    @contextmanager
    def _running(self, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
        with ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(
                [*self._command, *arguments], env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors, text=True,
            )  # fmt: skip
            reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
            reader.start()
            self._processes.append((process, errors))
            try:
                yield process
            finally:
                self._processes.remove((process, errors))
                process.kill()
                process.wait(30)
                reader.join(30)

    def _read(self, lines: Any) -> None:
        for line in lines:
            if line.startswith("{"):
                told = json.loads(line)
                self.claim_ms[told["second"]] += told.get("claim_ms", ())
                self.enqueued[told["second"]] += told.get("enqueued", 0)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
