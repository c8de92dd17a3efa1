"""Processes that a process of a worker forks or starts: their signals, and which the kernel kills first."""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType

# Points that a worker's score exceeds its supervisor's by, so that Linux kills the worker first when memory runs out
# (man 5 proc_pid_oom_score_adj); the second number is the highest score. A process may always raise its own score.
OOM_SCORE = Path("/proc/self/oom_score_adj")
MORE_EXPENDABLE, MAX_EXPENDABLE = 100, 1000

Handler = Callable[[int, FrameType | None], object] | int

# The handlers that a forked child of this process gets back, by signal; and each thread's mask before it forks.
_for_children: dict[int, Handler] = {}
_forking = threading.local()


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
