"""Children of handlers and actions: forked as multiprocessing does, without Django."""

import multiprocessing
import signal
from typing import Any

from tests.sizes import PATIENCE


def end_child(*, at_once: bool = True) -> None:
    """Fork a child, end it, and wait for it; ``at_once``: perhaps before it runs."""
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    child = context.Process(target=_wait, args=(begun,))
    child.start()
    if not at_once:
        begun.wait(PATIENCE)
    child.terminate()
    child.join(PATIENCE)
    if child.exitcode != -signal.SIGTERM:
        child.kill()
        raise RuntimeError(f"a child that was terminated ended with {child.exitcode}")


def _wait(begun: Any) -> None:
    begun.set()
    while True:
        signal.pause()
