"""How a worker is told to end, and how its event loop is left."""

import asyncio
import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STDERR = 2


# How often the supervisor of a worker was asked to stop; None once there is no supervisor.
Requests = Callable[[], int | None]


class StopSignals:
    """Calls ``stop`` for each time that a worker is asked to stop.

    A worker without a supervisor counts its signals. One with a supervisor believes the count of that: a signal to all
    processes of a group, by Ctrl-C or systemd, reaches the worker directly, and once more by its supervisor.
    """

    def __init__(self, stop: Callable[[], None], requests: Requests | None = None) -> None:
        self._stop = stop
        self._requests = requests
        self._heeded = 0

    def hear(self) -> None:
        """Heed a signal."""
        counted = self._requests() if self._requests else None
        # Zero: this one came directly, and the supervisor will hear of it or never does.
        wanted = self._heeded + 1 if counted is None else max(1, counted)
        while self._heeded < wanted:
            self._heeded += 1
            self._stop()


@contextmanager
def stop_on_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], requests: Requests | None = None
) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop``; SIGQUIT dumps all stacks. Only in the main thread, where signals arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signals = StopSignals(stop, requests)
    for number in before:
        loop.add_signal_handler(number, signals.hear)
    if hasattr(signal, "SIGQUIT"):
        # The descriptor: a program may have put something without one in the place of sys.stderr.
        faulthandler.register(signal.SIGQUIT, file=STDERR)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def close(loop: asyncio.AbstractEventLoop) -> None:
    """Close an event loop without waiting for handlers that do not let themselves be cancelled."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    for task in left:
        # Whatever is still there was abandoned and reported; its destruction is no further news.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
