"""An isolated process as its worker sees it: start it, ask it, end it. Messages are JSON, one line each."""

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stator.extensions.isolation.messages import NotStarted, ProcessFailed
from stator.extensions.isolation.surroundings import settings_module
from stator.texts import JsonObject

logger = logging.getLogger("stator.worker")

# Seconds that a process may take to start, and to close its connections at its end.
START_TIME, RETIRING = 60.0, 10.0

# Bytes of its error output that are kept, from the end: the last lines say most.
ERRORS_KEPT = 8192
CHUNK = 65536

# Characters of its stacks that are kept, from the beginning: the thread that hangs comes early.
STACKS_KEPT = 65536

# In place of a descriptor.
CLOSED = -1

# Seconds between checks whether the process has ended, while one of its children keeps its output open.
LOOK = 0.2


class IsolatedProcess:
    """An isolated process, the leader of a process group. The group ends when it is killed, and with this process.

    ``module`` is run by ``python -m``; see :mod:`stator.extensions.isolation.child`. ``grace``: seconds that it has to
    end by itself if this process is gone. ``limit``: the most bytes of an answer. ``keeps_errors``: what it writes to
    its error output becomes part of messages about its end.

    ``reached`` is called with what it says about its progress before it answers. ``stacks``: what ``faulthandler`` has
    written between its answers, because it ended while code held the interpreter.

    One thread at a time may start, ask and end it; any thread may kill it.
    """

    def __init__(self, module: str, *, grace: float = 0.0, limit: int = CHUNK, keeps_errors: bool = False) -> None:
        self.idle_since = 0.0
        self.reached: Callable[..., object] = ignore
        self._command = (sys.executable, "-m", module)
        self._grace = grace
        self._limit = limit
        self._keeps_errors = keeps_errors
        self._process: subprocess.Popen[bytes] | None = None
        # While this end of a pipe is open, the other side knows that this process lives. The others are for messages.
        self._life = self._requests = self._answers = CLOSED
        self._lock = threading.Lock()
        self._killed = False
        self._received = self._errors = b""
        self.stacks = ""

    @property
    def is_usable(self) -> bool:
        """Whether it may be asked again: it was not killed and gave all its answers."""
        return not self._killed

    def start(self, options: Mapping[str, object]) -> None:
        """Start it and return once it is ready; raise :class:`NotStarted` or :class:`ProcessFailed`."""
        environment = _environment()
        with self._lock:
            if self._killed:
                raise ProcessFailed("it was ended before it began")
            self._spawn(environment)
        answer = self.ask(options, ready_within=START_TIME)
        if "not_ready" in answer:
            self.end()
            raise NotStarted(answer["not_ready"])

    def ask(self, request: Mapping[str, object], *, ready_within: float | None = None) -> JsonObject:
        """Send a request and return the first answer, as :meth:`answer` does.

        Raise :class:`NotStarted` if none came within ``ready_within`` seconds.
        """
        with suppress(BrokenPipeError):
            os.write(self._requests, json.dumps(request).encode() + b"\n")
        return self.answer(ready_within=ready_within)

    def answer(self, *, ready_within: float | None = None) -> JsonObject:
        """Return the next answer; kill the process and raise :class:`ProcessFailed` if there is none."""
        while "reached" in (answer := self._next(ready_within)):
            self.reached(*answer["reached"])
        return answer

    def _next(self, ready_within: float | None) -> JsonObject:
        is_late = self._receive(ready_within)
        line, end, self._received = self._received.partition(b"\n")
        while end and not line.startswith(b"{"):
            self.stacks += f"{line.decode(errors='replace')}\n"[: STACKS_KEPT - len(self.stacks)]
            is_late = self._receive(ready_within)
            line, end, self._received = self._received.partition(b"\n")
        if end and len(line) <= self._limit:
            answer: dict[str, object] = json.loads(line)
            return answer
        code = self.end()
        if is_late:
            raise NotStarted(f"its process was not ready after {ready_within:g} s")
        if len(line) > self._limit:
            raise ProcessFailed(f"the answer of the process is longer than {self._limit} bytes", code)
        last = self._errors.decode(errors="replace").strip()
        wrote = f"; it wrote: {last}" if last else ""
        raise ProcessFailed(f"the process ended without an answer: {_how(code)}{wrote}", code)

    def retire(self) -> None:
        """Let the process end by itself once its requests end, then kill its group."""
        if self.is_usable and self._process is not None:
            self._requests = _closed(self._requests)
            try:
                self._process.wait(RETIRING)
            except subprocess.TimeoutExpired:
                logger.warning("stator.isolated_process_stuck", extra={"pid": self._process.pid})
        self.end()

    def end(self) -> int:
        """Kill the process and everything still in its group, and return its exit code once it has ended."""
        self.kill()
        if self._process is None:
            return 0
        code = self._process.wait()
        self._requests, self._answers = _closed(self._requests), _closed(self._answers)
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code

    def kill(self) -> None:
        """Kill the process and everything still in its group. Any thread may call this, more than once."""
        with self._lock:
            if not self._killed and self._process is not None:
                # The group may be gone; macOS reports "not permitted" if all its processes have ended.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._life = _closed(self._life)
            self._killed = True

    def _spawn(self, environment: dict[str, str]) -> None:
        opened: list[int] = []
        nothing = subprocess.DEVNULL
        try:
            for _ in range(3):
                opened += os.pipe()
            life, self._life, incoming, self._requests, self._answers, outgoing = opened
            self._process = subprocess.Popen(
                [*self._command, str(life), str(self._grace), str(incoming), str(outgoing)], stdin=nothing,
                stdout=nothing, stderr=subprocess.PIPE if self._keeps_errors else None,
                pass_fds=[life, incoming, outgoing], start_new_session=True, bufsize=0, env=environment,
            )  # fmt: skip
        except OSError as error:
            # The system has run out of memory, processes or files.
            for number in opened:
                os.close(number)
            self._life = self._requests = self._answers = CLOSED
            raise NotStarted(f"its process could not be started: {error.strerror}") from error
        for number in (life, incoming, outgoing):
            os.close(number)

    def _receive(self, within: float | None) -> bool:
        """Read until an answer is complete or too long, or the process has ended; return whether time was up before."""
        process: Any = self._process
        until = None if within is None else time.monotonic() + within
        ended: float | None = None
        with selectors.DefaultSelector() as selector:
            for stream in filter(None, (self._answers, process.stderr)):
                selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._received and len(self._received) <= self._limit and selector.get_map():
                for key, _ in selector.select(LOOK):
                    data = os.read(key.fd, CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj == self._answers:
                        self._received += data
                    else:
                        self._errors = (self._errors + data)[-ERRORS_KEPT:]
                now = time.monotonic()
                if until and now > until:
                    return True
                if ended and now > ended + LOOK:
                    break
                if not ended and process.poll() is not None:
                    ended = now
        return False


def _closed(number: int) -> int:
    """Close a descriptor that is open."""
    if number != CLOSED:
        os.close(number)
    return CLOSED


def ignore(*said: object) -> None:
    """Do nothing with what a process says about its progress."""


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
