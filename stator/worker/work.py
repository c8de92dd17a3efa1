"""The work of a worker: which rows it holds, and whether there is more to do."""

from collections.abc import Mapping

from stator.db.interface import Claim
from stator.worker.attempts import Attempts
from stator.worker.crash_isolation import InProcessIsolation
from stator.worker.dispatcher import Dispatcher
from stator.worker.recorder import Recorder
from stator.worker.scheduler import Scheduler


class WorkInHand:
    """Everything that a worker has in hand: attempts here or in processes of their own, and outcomes to record."""

    def __init__(
        self,
        attempts: Attempts,
        isolation: InProcessIsolation,
        recorder: Recorder,
        dispatcher: Dispatcher,
        scheduler: Scheduler,
    ) -> None:
        self._attempts = attempts
        self._isolation = isolation
        self._recorder = recorder
        self._dispatcher = dispatcher
        self._scheduler = scheduler

    def claims(self) -> list[Claim]:
        """Return the claims that are held."""
        parts: tuple[Mapping[int, Claim], ...]
        parts = (self._attempts.running, self._isolation.running, self._recorder.held)
        return [claim for part in parts for claim in list(part.values())]

    @property
    def is_empty(self) -> bool:
        """Whether no attempt runs in this process, and no outcome waits to be recorded."""
        return not self._attempts.running and not self._recorder.held

    @property
    def is_running(self) -> bool:
        """Whether any attempt runs, here or in a process of its own."""
        return bool(self._attempts.running or self._isolation.running)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held and the latest poll found nothing."""
        is_busy = self._isolation.running or self._dispatcher.hungry
        return self._scheduler.found_nothing and self.is_empty and not is_busy

    def cancel_ended(self, keys: set[int]) -> None:
        """Cancel the attempts of claims, given by their ``id()``, that have ended."""
        self._attempts.cancel_ended(keys)
        self._isolation.cancel_ended(keys)

    def figures(self) -> dict[str, int]:
        """Return what is published in the table of workers: attempts that run, and what was done so far."""
        handled = sum(self._recorder.handled.copy().values())
        running = len(self._attempts.running) + len(self._isolation.running)
        return {"running": running, "handled": handled, "lost": self._recorder.lost}
