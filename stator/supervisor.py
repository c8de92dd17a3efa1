"""Several worker processes under one parent: it starts them, passes signals on, and replaces those that die."""

import logging
import os
import random
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from types import FrameType

logger = logging.getLogger("stator.supervisor")

# A worker that ends with one of these would do so again: bad settings, an unusable database.
FINAL_CODES = (2, 75)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 30.0

# A worker that lived for so long does not count as failing to start.
SETTLED = 10.0

# By how much of a thousand workers are more likely than their supervisor to be killed by Linux when memory runs out
# (man 5 proc_pid_oom_score_adj). A process may always raise its own.
OOM_SCORE = Path("/proc/self/oom_score_adj")
MORE_EXPENDABLE, MOST_EXPENDABLE = 100, 1000

# Of the parent; a child begins without them.
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)


class Supervisor:
    """Runs ``work(number)`` in each of ``count`` forked processes until told to stop; it returns their exit code."""

    def __init__(self, count: int, work: Callable[[int], int], grace: float) -> None:
        self._count = count
        self._work = work
        self._grace = grace
        self._children: dict[int, tuple[int, float]] = {}
        self._starts: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._pid = os.getpid()
        self._signals = 0
        # One byte that the workers see: of a signal alone they cannot know who sent it, and some may be merged.
        self._shown = mmap(-1, 1)
        self._stopped_at = 0.0
        self._code = 0

    def run(self) -> int:
        """Supervise until all have ended; 0 after a clean stop, 130 after a forced one, else a worker's code."""
        self._starts = dict.fromkeys(range(self._count), 0.0)
        with self._handling_signals():
            while self._children or self._starts:
                self._start_due()
                self._wait()
                self._reap()
                self._kill_late()
        return 130 if self._signals > 1 else self._code

    def requests(self) -> int | None:
        """Return, in a worker, how often its supervisor was asked to stop; None once the supervisor is gone."""
        return self._shown[0] if os.getppid() == self._pid else None

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        # Each signal makes the socket readable, which ends the wait at once.
        self._ear, mouth = socket.socketpair()
        for end in (self._ear, mouth):
            end.setblocking(False)
        before = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
        wanted = {signal.SIGINT: self._pass_on, signal.SIGTERM: self._pass_on, signal.SIGQUIT: self._tell}
        handlers = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        # The default for SIGCHLD is to ignore it, without a word to the socket.
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
        # What comes meanwhile waits: a child in which these handlers still were would pass it on to the others.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
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
            # Not sys.exit: the child has a copy of everything the parent would clean up at its own end.
            os._exit(code)

    def _wait(self) -> None:
        """Sleep until a signal, a due start, or half a second."""
        pause = min([0.5, *(max(0.0, when - time.monotonic()) for when in self._starts.values())])
        if select.select([self._ear], [], [], pause)[0]:
            self._ear.recv(4096)

    def _reap(self) -> None:
        """Take note of every process that has ended; as PID 1 also of those that were left to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._children:
                number, started = self._children.pop(pid)
                self._ended(number, os.waitstatus_to_exitcode(status), time.monotonic() - started)

    def _ended(self, number: int, code: int, lived: float) -> None:
        if self._stopped_at or code == 0:
            self._code = self._code or max(code, 0)
            return
        # A replacement is tried again: the first process of its number found a database.
        if code in FINAL_CODES and number not in self._failures:
            self._code = code
            self._stop(signal.SIGTERM)
            return
        failures = self._failures[number] = 0 if lived > SETTLED else self._failures.get(number, 0) + 1
        pause = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2**failures) * random.uniform(0.5, 1.0)
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


def be_expendable() -> None:
    """Have the kernel kill this process for memory before the one that would replace it."""
    # Not Linux, or no writable /proc: then it chooses by size alone.
    with suppress(OSError):
        OOM_SCORE.write_text(str(min(MOST_EXPENDABLE, int(OOM_SCORE.read_text()) + MORE_EXPENDABLE)))


def end_with(pipe: int) -> None:
    """Have the whole process group killed once nobody holds the other end of a pipe, because whoever made it is gone.

    By a process of its own: what runs in this one may hold the interpreter, so that no thread of it gets on.
    """
    if os.fork():
        return
    try:
        # Whoever started the group waits for the end of these.
        for stream in {0, 1, 2} - {pipe}:
            os.close(stream)
        while os.read(pipe, 1):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)
