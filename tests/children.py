"""Children of handlers and actions: forked as multiprocessing does, without Django."""

import multiprocessing
import signal

from tests.sizes import PATIENCE


def end_child() -> None:
    """Fork a child, end it, perhaps before it runs, and wait for it."""
    child = multiprocessing.get_context("fork").Process(target=_wait)
    child.start()
    child.terminate()
    child.join(PATIENCE)
    if child.exitcode != -signal.SIGTERM:
        child.kill()
        raise RuntimeError(f"a child that was terminated ended with {child.exitcode}")


def _wait() -> None:
    while True:
        signal.pause()
