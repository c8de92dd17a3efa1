"""How a worker is told to end, and how its event loop is left."""

import asyncio
import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop``; SIGQUIT dumps all stacks. Only in the main thread, where signals arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, stop)
    if hasattr(signal, "SIGQUIT"):
        faulthandler.register(signal.SIGQUIT)
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
