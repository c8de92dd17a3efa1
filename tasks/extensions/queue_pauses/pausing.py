"""What a queue says of its pauses, and how it is paused and resumed."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import F, Q, Value
from django.db.models.lookups import Exact, GreaterThan, IsNull
from django.utils import timezone

from stator.asynchronous import in_thread
from stator.graph.backoff import MAX_SECONDS
from stator.models import Now, moment_text, remembered
from tasks.datetimes import moment_problem, stored
from tasks.exceptions import QueuePaused, TaskError
from tasks.rows.clock import Later
from tasks.rows.databases import home

if TYPE_CHECKING:
    from tasks.rows.queues import QueueRow
else:
    QueueRow = object

logger = logging.getLogger("tasks.queues")


def pause_lasts(of_queue: Callable[[str], object] = F) -> Q:
    """Return the condition that a pause has no end or its end has not come; ``of_queue`` returns a queue's column."""
    return Q(IsNull(of_queue("pause_until"), True)) | Q(GreaterThan(of_queue("pause_until"), Now()))


def claims_are_paused(of_queue: Callable[[str], object] = F) -> Q:
    """Return the condition that the claims from a queue are paused now."""
    return Q(Exact(of_queue("claim_paused"), Value(True))) & pause_lasts(of_queue)


class QueuePausing(QueueRow):
    """A queue that may refuse tasks, claims or both; its row has the columns of a pause."""

    @property
    def publishing_paused(self) -> bool:
        """Whether new tasks are refused now; a pause ends at ``pause_until``."""
        return self.publish_paused and not self._pause_over

    @property
    def claiming_paused(self) -> bool:
        """Whether claims are refused now; a pause ends at ``pause_until``."""
        return self.claim_paused and not self._pause_over

    @property
    def what_is_paused(self) -> str:
        """What is paused now, as text: ``publishing``, ``claiming``, both, or an empty text."""
        parts = (("publishing", self.publishing_paused), ("claiming", self.claiming_paused))
        return " and ".join(name for name, is_paused in parts if is_paused)

    @property
    def pause_line(self) -> str:
        """What is paused now, who paused it, until when and why, as text; empty if nothing is."""
        what = self.what_is_paused
        return f"{what} {self.pause_description}" if what else ""

    @property
    def pause_description(self) -> str:
        """Who paused the queue, until when and why, as text."""
        by = f"paused by {self.pause_author}" if self.pause_author else "paused"
        until = f" until {moment_text(self.pause_until)}" if self.pause_until else ""
        return f"{by}{until}{f' ({self.pause_reason})' if self.pause_reason else ''}"

    @property
    def _pause_over(self) -> bool:
        now = self.__dict__.get("read_at") or stored(timezone.now(), self._state.db or home())
        return self.pause_until is not None and self.pause_until <= now

    @property
    def takes_at_once(self) -> bool:  # type: ignore[override]
        """Whether it was open when it was read; a statement does not compare when a pause ends."""
        return not self.publish_paused

    @property
    def gives_at_once(self) -> bool:  # type: ignore[override]
        """The same for claims."""
        return not self.claim_paused

    @property
    def gives_tasks(self) -> bool:  # type: ignore[override]
        """Whether claims are served now."""
        return not self.claiming_paused

    def refuse_tasks(self) -> None:
        """Raise ``QueuePaused`` while publishing is paused."""
        if self.publishing_paused:
            raise QueuePaused(f"queue {self.name} accepts no tasks now: {self.pause_description}")

    def pause(
        self,
        *,
        publish: bool = False,
        claim: bool = False,
        reason: str = "",
        author: str = "",
        seconds: float | None = None,
        until: datetime | None = None,
    ) -> None:
        """Refuse new tasks, refuse claims, or both; for ``seconds``, ``until`` a time, or until :meth:`resume`.

        A new pause replaces the previous one. Running tasks may finish.
        """
        if seconds is not None and not 0 < seconds <= MAX_SECONDS:
            raise TaskError(f"seconds={seconds!r} must be a number above 0 and below a hundred years, or None")
        if problem := moment_problem(until):
            raise TaskError(f"until={until} {problem}")
        values = {
            "publish_paused": publish,
            "claim_paused": claim,
            "pause_reason": " ".join(reason.split())[:200],
            "pause_author": author[:150],
            "pause_until": Later(seconds) if seconds is not None else until and stored(until, self._state.db or home()),
        }
        with remembered(self._state.db or home(), [self], list(values)):
            self._row.update(**values)
            self.refresh_from_db(self._state.db, list(values))
        fields = {"queue": self.name, "publish": publish, "claim": claim, "author": author}
        logger.info("tasks.paused" if publish or claim else "tasks.resumed", extra=fields)

    def resume(self, *, author: str = "") -> None:
        """End both pauses."""
        self.pause(author=author)

    apause = in_thread(pause)
    aresume = in_thread(resume)
