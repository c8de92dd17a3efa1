"""Who lives: what every sentence about workers asks, so that no two of them contradict each other.

A worker is *live* if it was heard of in the last 30 s and has not ended (``WorkerQuerySet.live``). A process that was
stopped without a signal, or is cut off, is *silent*. A process of which another one knows that it is gone has ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from stator.rows.workers import WORKER_ALIVE

START = "start manage.py runstator"


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers that serve a model. ``live``: how many live.

    ``served``: for how many seconds without a gap there was one, up to now; 0 without a live one. What has waited for
    longer has waited for a worker to be started.
    ``known``: False if the table of workers could not be read, or nothing writes it.
    ``left``: the states that each of them leaves alone.
    """

    live: int = 0
    served: float = 0.0
    known: bool = True
    left: frozenset[str] = frozenset()

    @property
    def is_missing(self) -> bool:
        """Whether it is known that nobody serves the model."""
        return self.known and not self.live

    def fault(self, waited: float | None) -> float:
        """Return for how many of these seconds a live worker could have ended the wait."""
        return min(waited or 0.0, self.served)

    def takes_over(self, left: float, words: str) -> str:
        """Say when objects are taken over whose leases last ``left`` seconds more; ``words`` say that span."""
        if self.is_missing:
            return f"which nobody takes over: no live worker serves {'them' if left > 0 else 'them now'}"
        after = f"after their leases, within {words}" if left > 0 else "now: their leases are over"
        return f"which live workers take over {after}"


def served_for(lives: Iterable[tuple[float, float]]) -> float:
    """Return for how many seconds somebody has been there, from the times ago when each life began and ended."""
    reached = 0.0
    for began, ended in sorted(lives, key=lambda life: life[1]):
        if ended > reached + WORKER_ALIVE:
            break
        reached = max(reached, began)
    return reached
