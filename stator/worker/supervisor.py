"""Several worker processes under one parent: it starts them, passes signals on, and replaces dead ones."""

import logging
import os
import random
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from mmap import mmap
from pathlib import Path
from types import FrameType

logger = logging.getLogger("stator.supervisor")

# Exit codes of errors that would come again: bad settings, an unusable database.
FINAL_CODES = (2, 75)
MIN_PAUSE, MAX_PAUSE = 0.2, 30.0

# Seconds after which a worker that dies does not count as failing to start.
SETTLED = 10.0

# Points that a worker's score exceeds its supervisor's by, so that Linux kills the worker first when memory runs out
# (man 5 proc_pid_oom_score_adj); the second number is the highest score. A process may always raise its own score.
OOM_SCORE = Path("/proc/self/oom_score_adj")
MORE_EXPENDABLE, MAX_EXPENDABLE = 100, 1000

# Seconds between two checks of a process that is about to end.
GLANCE = 0.02

# Signals that the parent handles; a child starts with their defaults.
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)

Handler = Callable[[int, FrameType | None], object] | int

# The handlers that a forked child of this process gets back, by signal; and each thread's mask before it forks.
_for_children: dict[int, Handler] = {}
_forking = threading.local()


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


def be_expendable() -> None:
    """Make the kernel kill this process before its supervisor when memory runs out."""
    # Without a writable /proc, for instance on another system, the kernel chooses by size alone.
    with suppress(OSError):
        OOM_SCORE.write_text(str(min(MAX_EXPENDABLE, int(OOM_SCORE.read_text()) + MORE_EXPENDABLE)))


def handlers_for_children(numbers: Iterable[int]) -> dict[int, Handler]:
    """Return the handlers of these signals and note that a child which this process forks gets them back.

    Call it before you set handlers of your own. A child of ``multiprocessing`` would inherit those and ignore
    ``terminate()``, and it would share the descriptor that passes signals to the event loop.
    """
    _watch_forks()
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in numbers}
    _for_children.update(handlers)
    return handlers


def restore_handlers(handlers: dict[int, Handler]) -> None:
    """Set the handlers again that :func:`handlers_for_children` has returned."""
    for number, handler in handlers.items():
        signal.signal(number, handler)
        _for_children.pop(number, None)


@cache
def _watch_forks() -> None:
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _before_fork() -> None:
    # A signal that reaches the child before it has its handlers waits.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _for_children)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_child() -> None:
    if _for_children:
        signal.set_wakeup_fd(-1)
        restore_handlers(_for_children.copy())
    _after_fork()


def end_with(pipe: int, grace: float, streams: Collection[int]) -> None:
    """Fork a process that kills the process group once the other end of a pipe is closed: its owner is gone.

    Before that, this process has ``grace`` seconds to end by itself. A thread could not kill it, because code in this
    process may hold the interpreter. ``streams``: the descriptors whose end others wait for.
    """
    leader = os.getpid()
    if os.fork():
        return
    # systemd sends SIGTERM to all processes of a unit; this one stays for as long as its leader does.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        for stream in streams:
            os.close(stream)
        while os.read(pipe, 1):
            pass
        deadline = time.monotonic() + grace
        while os.getppid() == leader and time.monotonic() < deadline:
            time.sleep(GLANCE)
    finally:
        os.killpg(0, signal.SIGKILL)
