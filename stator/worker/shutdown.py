"""The end of a worker: signals that stop it, and closing its event loop."""

import asyncio
import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stator.worker.children import handlers_for_children, restore_handlers

# The descriptor, because the program may have replaced sys.stderr, and the dump must get out.
STDERR = 2

# Returns how often the supervisor of a worker was asked to stop, or None if there is no supervisor any more.
Requests = Callable[[], int | None]


class StopRequests:
    """Calls ``stop`` each time the worker is asked to stop.

    Without a supervisor, the worker counts its signals. With one, it uses the supervisor's count: a signal to the whole
    process group, by Ctrl-C or systemd, reaches the worker directly and again through its supervisor.
    """

    def __init__(self, stop: Callable[[], None], requests: Requests | None = None) -> None:
        self._stop = stop
        self._requests = requests
        self._heeded = 0

    def hear(self) -> None:
        """React to a signal."""
        counted = self._requests() if self._requests else None
        # Zero: the signal came directly, and the supervisor either gets it later or never.
        wanted = self._heeded + 1 if counted is None else max(1, counted)
        while self._heeded < wanted:
            self._heeded += 1
            self._stop()


@contextmanager
def stop_on_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], requests: Requests | None = None
) -> Iterator[None]:
    """Call ``stop`` on SIGINT and SIGTERM, and dump all stacks on SIGQUIT.

    Does nothing outside the main thread, where no signals arrive.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = handlers_for_children((signal.SIGINT, signal.SIGTERM))
    signals = StopRequests(stop, requests)
    for number in before:
        loop.add_signal_handler(number, signals.hear)
    if hasattr(signal, "SIGQUIT"):
        faulthandler.register(signal.SIGQUIT, file=STDERR)
    try:
        yield
    finally:
        for number in before:
            loop.remove_signal_handler(number)
        restore_handlers(before)


def close(loop: asyncio.AbstractEventLoop) -> None:
    """Close an event loop without waiting for handlers that ignore their cancellation."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    for task in left:
        # Remaining tasks were abandoned and reported; a warning on their destruction would add nothing.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
