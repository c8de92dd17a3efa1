"""A watchdog: ends a worker whose event loop hangs or whose parts have trouble, and writes its liveness file."""

import faulthandler
import logging
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType

from stator.extensions.watchdog.last_words import report_hanging
from stator.worker import executor
from stator.worker.parts import WorkerPart
from stator.worker.shutdown import STDERR
from stator.worker.worker import Worker

logger = logging.getLogger("stator.worker")

FROZEN = 70

# Frames of these modules lie between the loop and a handler.
OURS = str(Path(executor.__file__).parent)

# Seconds after which a call that blocks the event loop is logged, and between looks for one. The loop turns every 0.1 s
# while attempts run, else every 0.5 s.
BLOCKED, LOOK_EVERY = 0.6, 0.25
# Seconds until the same place is logged again, and how many calls are shown.
SAME_PLACE, SHOWN = 60.0, 8


def parts(worker: Worker) -> Iterator[WorkerPart]:
    """Yield the watchdog of a worker that wants to be watched."""
    if worker.watch:
        watchdog = Watchdog(
            worker.settings.WATCHDOG, worker.liveness_file, worker.health.trouble, parting=report_hanging
        )  # fmt: skip
        yield WorkerPart(start=watchdog.start, stop=watchdog.stop, beat=watchdog.tick)


class Watchdog:
    """A thread that expects ``tick()`` at least every ``limit`` seconds, and otherwise ends the process.

    With ``tells`` it logs the calls that block the event loop, long before that. ``parting`` gets the trouble before
    the end, and the threads that may have it.

    A handler that never releases the interpreter stops this thread too; the C-level timer of ``faulthandler`` then
    dumps the stacks and ends the process with exit code 1. ``stacks``: the descriptor to which it writes them.
    """

    def __init__(
        self,
        limit: float,
        liveness_file: str | None,
        healthy: Callable[[], str],
        *,
        tells: bool = True,
        parting: Callable[[str, Collection[int]], object] = lambda trouble, threads: None,
        stacks: int = STDERR,
    ) -> None:
        self._limit = limit
        self._liveness_file = Path(liveness_file) if liveness_file else None
        self._healthy = healthy
        self._tells = tells
        self._parting = parting
        self._stacks = stacks
        self._ticked = time.monotonic()
        self._ticker = 0
        # The block that was noticed last, by its last tick; where the last one that was logged was, and when.
        self._noticed = 0.0
        self._logged = ("", 0.0)
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
        """Note that the loop turns, which is in the calling thread."""
        self._ticked = time.monotonic()
        self._ticker = threading.get_ident()

    def _work(self) -> None:
        interval = min(5.0, self._limit / 4)
        while True:
            faulthandler.dump_traceback_later(2 * self._limit, exit=True, file=self._stacks)
            if trouble := self._trouble():
                self._end(trouble)
            self._show_life()
            if self._rest(interval):
                return

    def _rest(self, seconds: float) -> bool:
        """Wait, and meanwhile log what blocks the loop; return whether to stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopped.wait(min(left, LOOK_EVERY)):
                return True
            if self._tells:
                self._tell_block()
        return False

    def _tell_block(self) -> None:
        ticked, now = self._ticked, time.monotonic()
        frame = sys._current_frames().get(self._ticker) if now - ticked > BLOCKED and ticked != self._noticed else None
        # A loop that waits for events is only late, because the machine is busy.
        if frame is None or frame.f_code.co_name == "select":
            return
        self._noticed = ticked
        stack, (place, logged) = _stack_of(frame), self._logged
        if stack != place or now - logged > SAME_PLACE:
            self._logged = stack, now
            logger.warning("stator.loop_blocked", extra={"seconds": round(now - ticked, 1), "stack": stack})

    @property
    def sees_life(self) -> bool:
        """Whether the loop has turned lately."""
        return time.monotonic() - self._ticked < self._limit / 2

    def _trouble(self) -> str:
        still = time.monotonic() - self._ticked
        return f"the event loop was blocked for {still:.0f} s" if still > self._limit else self._healthy()

    @property
    def _suspects(self) -> Collection[int]:
        """The thread of the loop if that is blocked, else all others."""
        if time.monotonic() - self._ticked > self._limit:
            return {self._ticker}
        return sys._current_frames().keys() - {self._ticker}

    def _end(self, trouble: str) -> None:
        logger.critical("stator.frozen", extra={"trouble": trouble})
        sys.stderr.write(f"stator: {trouble}; stacks follow, then the worker exits with {FROZEN}\n")
        faulthandler.dump_traceback(file=STDERR, all_threads=True)
        self._parting(trouble, self._suspects)
        os._exit(FROZEN)

    def _show_life(self) -> None:
        if self._liveness_file is None or not self.sees_life:
            return
        try:
            write_liveness(self._liveness_file)
        except OSError as error:
            # A probe sees that the file gets old; a full disk must not end the watchdog.
            logger.warning("stator.liveness_failed", extra={"error": type(error).__name__})


def _stack_of(frame: FrameType) -> str:
    """Return the calls of the project's code in a frame of the loop's thread, the innermost last."""
    calls = traceback.extract_stack(frame)
    inner = [at for at, call in enumerate(calls) if OURS in call.filename or "asyncio" in Path(call.filename).parts]
    own = calls[inner[-1] + 1 :] if inner else calls
    return " > ".join(f"{call.filename}:{call.lineno} {call.name}()" for call in (own or calls)[-SHOWN:])


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
