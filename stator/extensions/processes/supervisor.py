"""Several worker processes under one parent: it starts them, passes signals on, and replaces dead ones."""

import logging
import os
import random
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from mmap import mmap
from types import FrameType

from stator.worker.children import be_expendable
from stator.worker.parts import WorkerPart
from stator.worker.worker import Worker

logger = logging.getLogger("stator.supervisor")

# Exit codes of errors that would come again: bad settings, an unusable database.
FINAL_CODES = (2, 75)
MIN_PAUSE, MAX_PAUSE = 0.2, 30.0

# Seconds after which a worker that dies does not count as failing to start.
SETTLED = 10.0

# Signals that the parent handles; a child starts with their defaults.
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)


class Supervisor:
    """Runs ``work(number)``, which returns an exit code, in each of ``count`` forked processes until told to stop.

    A process that ends is replaced, whatever its exit code, unless its work called :meth:`note_done`. ``parent``: all
    of them are stopped when this process, which started the supervisor, is gone.
    """

    def __init__(self, count: int, work: Callable[[int], int], grace: float, parent: int | None = None) -> None:
        self._count = count
        self._work = work
        self._grace = grace
        self._parent = parent
        self._children: dict[int, tuple[int, float]] = {}
        self._starts: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        # By the number of a process: the process that it replaced, and that process's exit code.
        self._before: dict[int, tuple[int, int]] = {}
        self._pid = os.getpid()
        self._signals = 0
        # Bytes shared with the workers. The first is the number of requests to stop, because a signal does not say who
        # sent it, and several may be merged. Each further byte says whether a worker is done: any code may exit with 0.
        self._shown = mmap(-1, 1 + count)
        self._stopped_at = 0.0
        self._code = 0

    def run(self) -> int:
        """Supervise until all have ended; return 0 after a clean stop, 130 after a forced one, else a worker's code."""
        self._starts = dict.fromkeys(range(self._count), 0.0)
        with self._handling_signals():
            while self._children or self._starts:
                self._start_due()
                self._wait()
                self._reap()
                if is_gone(self._parent) and not self._stopped_at:
                    self._stop(signal.SIGTERM)
                self._kill_late()
        return 130 if self._signals > 1 else self._code

    def replaced_by(self, number: int) -> tuple[int, int] | None:
        """Return, in a worker, the process that it replaces and its exit code, negative for a signal; None if none."""
        return self._before.get(number)

    def requests(self) -> int | None:
        """Return, in a worker, how often its supervisor was asked to stop, or None if the supervisor is gone."""
        return None if is_gone(self._pid) else self._shown[0]

    def note_done(self, number: int) -> None:
        """Note, in a worker, that it has done what it was started for and needs no replacement."""
        self._shown[1 + number] = 1

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        # Each signal makes the socket readable, which ends the wait at once.
        self._ear, mouth = socket.socketpair()
        for end in (self._ear, mouth):
            end.setblocking(False)
        before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
        wanted = {signal.SIGINT: self._pass_on, signal.SIGTERM: self._pass_on, signal.SIGQUIT: self._tell}
        handlers = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        # By default Python ignores SIGCHLD and writes nothing to the socket.
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            for end in (self._ear, mouth):
                end.close()

    def _start_due(self) -> None:
        for number, when in list(self._starts.items()):
            if self._stopped_at:
                del self._starts[number]
            elif time.monotonic() >= when:
                del self._starts[number]
                self._fork(number)

    def _fork(self, number: int) -> None:
        # Signals that arrive meanwhile wait: a child with these handlers would pass them on to the other children.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        self._shown[1 + number] = 0
        pid = os.fork()
        if pid:
            self._children[pid] = (number, time.monotonic())
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        signal.set_wakeup_fd(-1)
        for name in HANDLED:
            signal.signal(name, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        be_expendable()
        code = 1
        try:
            code = self._work(number)
        finally:
            # ``sys.exit`` would run the child's copy of the parent's clean-up.
            os._exit(code)

    def _wait(self) -> None:
        """Sleep until a signal, the next start, or half a second has passed."""
        pause = min([0.5, *(max(0.0, when - time.monotonic()) for when in self._starts.values())])
        if select.select([self._ear], [], [], pause)[0]:
            self._ear.recv(4096)

    def _reap(self) -> None:
        """Note every process that has ended; as PID 1 also orphans that this process inherited."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._children:
                number, started = self._children.pop(pid)
                self._before[number] = pid, os.waitstatus_to_exitcode(status)
                self._ended(number, os.waitstatus_to_exitcode(status), time.monotonic() - started)

    def _ended(self, number: int, code: int, lived: float) -> None:
        if self._stopped_at or (code == 0 and self._shown[1 + number]):
            self._code = self._code or max(code, 0)
            return
        # An exit code of a replacement is not final: the first process of its number had worked.
        if code in FINAL_CODES and number not in self._failures:
            self._code = code
            self._stop(signal.SIGTERM)
            return
        failures = self._failures[number] = 0 if lived > SETTLED else self._failures.get(number, 0) + 1
        pause = min(MAX_PAUSE, MIN_PAUSE * 2**failures) * random.uniform(0.5, 1.0)
        logger.warning("stator.worker_died", extra={"number": number, "exit_code": code, "restart_in": round(pause, 2)})
        self._starts[number] = time.monotonic() + pause

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._shown[0] = min(self._signals, 255)
        self._stop(number)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        for pid in self._children:
            os.kill(pid, number)

    def _stop(self, number: int) -> None:
        self._stopped_at = self._stopped_at or time.monotonic()
        self._tell(number, None)

    def _kill_late(self) -> None:
        if self._stopped_at and time.monotonic() - self._stopped_at > self._grace:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)


def is_gone(parent: int | None) -> bool:
    """Return whether the process that started this one is gone; False if none is given."""
    return parent is not None and os.getppid() != parent


def parts(worker: Worker) -> Iterator[WorkerPart]:
    """Yield what ends a worker whose supervisor, or another process that has started it, is gone."""
    if worker.parent is not None or worker.requests is not None:
        yield WorkerPart(beat=partial(_end_orphan, worker))


def _end_orphan(worker: Worker) -> None:
    is_orphan = is_gone(worker.parent) or (worker.requests is not None and worker.requests() is None)
    if is_orphan and not worker.is_stopping:
        worker.stop("orphaned")
