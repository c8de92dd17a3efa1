"""Isolated actions: each runs in a process of its own, which can be killed. Data is exchanged as JSON, never pickled.

The process is ``python -m tasks.actions.isolation``, the leader of a process group. It ends with its group when it has
answered, when it is killed, and when its worker is gone, which it notices by the end of its standard input.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from stator.exceptions import NotBegun
from tasks.actions.isolation.surroundings import settings_module, surroundings
from tasks.failures import IsolationError

COMMAND = (sys.executable, "-m", "tasks.actions.isolation")

# Bytes of its error output that are kept, from the end: the last lines say most.
ERRORS_KEPT = 8192
CHUNK = 65536

# Seconds until a process that could not be started is tried again.
START_AGAIN = 10.0

# Seconds between checks whether the process has ended, while one of its children keeps its output open.
LOOK = 0.2


class Child:
    """One isolated attempt. ``limit``: the most bytes of its answer."""

    def __init__(self, request: dict[str, Any], limit: int) -> None:
        self._request = request
        self._limit = limit
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._killed = False
        self._errors = b""

    def run(self) -> dict[str, Any]:
        """Start the process and return its answer; raise :class:`~tasks.failures.IsolationError` if there is none."""
        environment, request = _environment(), {**self._request, **surroundings(self._request.get("using"))}
        with self._lock:
            if self._killed:
                raise IsolationError("it was ended before it began")
            self._process = process = _start(environment)
        try:
            answer = self._exchange(process, json.dumps(request).encode() + b"\n")
        finally:
            self.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return self._understood(answer, process.returncode)

    def kill(self) -> None:
        """Kill the process and everything still in its group. Any thread may call this, more than once."""
        with self._lock:
            if not self._killed and self._process is not None:
                # The group is gone. macOS reports "not permitted" if all its processes have ended.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._killed = True

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> bytes:
        """Send the request and return the answer's line, or what came of it. Standard input stays open meanwhile."""
        try:
            process.stdin.write(request)  # type: ignore[union-attr]
        except BrokenPipeError:
            return b""
        answer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
            selector.register(process.stderr, selectors.EVENT_READ)  # type: ignore[arg-type]
            ended = 0.0
            while len(answer) <= self._limit and not answer.endswith(b"\n"):
                for key, _ in selector.select(LOOK):
                    data = os.read(key.fd, CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        answer += data
                    else:
                        self._errors = (self._errors + data)[-ERRORS_KEPT:]
                if not selector.get_map() or (ended and time.monotonic() > ended + LOOK):
                    break
                if not ended and process.poll() is not None:
                    ended = time.monotonic()
        return answer

    def _understood(self, answer: bytes, code: int) -> dict[str, Any]:
        if len(answer) > self._limit:
            raise IsolationError(f"the answer of the process is longer than {self._limit} bytes")
        if answer.endswith(b"\n"):
            understood: dict[str, Any] = json.loads(answer)
            return understood
        last = self._errors.decode(errors="replace").strip()
        raise IsolationError(
            f"the process ended without an answer: {_how(code)}" + (f"; it wrote: {last}" if last else "")
        )


def _start(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, bufsize=0, env=environment
        )
    except OSError as error:
        # The system has run out of memory, processes or files.
        reason = f"the attempt did not begin: its process could not be started: {error.strerror}"
        raise NotBegun(START_AGAIN, reason) from error


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _environment() -> dict[str, str]:
    path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    return {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": settings_module()}
