"""A watchdog: ends a worker whose event loop hangs or whose parts have trouble, and writes its liveness file."""

import faulthandler
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger("stator.worker")

FROZEN = 70

# The descriptor, because the program may have replaced sys.stderr, and the dump must get out.
STDERR = 2


# Seconds that a trouble must last before the process is ended: short ones pass.
PATIENCE = 5.0

# Returns a sentence if there has been trouble for the given number of seconds, else "". Any thread may call it.
Look = Callable[[float], str]


class Health:
    """The troubles of one process. An app adds its own in a receiver of ``on_start``: ``sender.health.watch(...)``."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}

    def watch(self, name: str, look: Look) -> None:
        """Call ``look`` from now on, in place of an earlier one with the same name."""
        self._looks[name] = look

    def trouble(self, patience: float = PATIENCE) -> str:
        """Return in one sentence what has held up the process for ``patience`` seconds, or ""."""
        return next(filter(None, (look(patience) for look in list(self._looks.values()))), "")


class Watchdog:
    """A thread that expects ``tick()`` at least every ``limit`` seconds, and otherwise ends the process.

    A handler that never releases the interpreter stops this thread too; the C-level timer of ``faulthandler`` then
    dumps the stacks and ends the process with exit code 1.
    """

    def __init__(self, limit: float, liveness_file: str | None, healthy: Callable[[], str]) -> None:
        self._limit = limit
        self._liveness_file = Path(liveness_file) if liveness_file else None
        self._healthy = healthy
        self._ticked = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stator-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.tick()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._thread.join(1.0)
        faulthandler.cancel_dump_traceback_later()

    def tick(self) -> None:
        """Note that the loop turns."""
        self._ticked = time.monotonic()

    def _work(self) -> None:
        interval = min(5.0, self._limit / 4)
        while True:
            faulthandler.dump_traceback_later(2 * self._limit, exit=True, file=STDERR)
            if trouble := self._trouble():
                self._end(trouble)
            self._show_life()
            if self._stopped.wait(interval):
                return

    @property
    def sees_life(self) -> bool:
        """Whether the loop has turned lately."""
        return time.monotonic() - self._ticked < self._limit / 2

    def _trouble(self) -> str:
        still = time.monotonic() - self._ticked
        return f"the event loop was blocked for {still:.0f} s" if still > self._limit else self._healthy()

    def _end(self, trouble: str) -> None:
        logger.critical("stator.frozen", extra={"trouble": trouble})
        sys.stderr.write(f"stator: {trouble}; stacks follow, then the worker exits with {FROZEN}\n")
        faulthandler.dump_traceback(file=STDERR, all_threads=True)
        os._exit(FROZEN)

    def _show_life(self) -> None:
        if self._liveness_file is None or not self.sees_life:
            return
        try:
            write_liveness(self._liveness_file)
        except OSError as error:
            # A probe sees that the file gets old; a full disk must not end the watchdog.
            logger.warning("stator.liveness_failed", extra={"error": type(error).__name__})


def write_liveness(path: Path) -> None:
    """Replace the file by one with the time of the last sign of life, in Unix seconds; does not follow links."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{int(time.time())}\n")
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
