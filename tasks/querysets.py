"""What is in a queue: tasks by status, metadata, age and worker."""

from collections.abc import Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import router
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from stator.models import move_rows
from tasks.conf import load_settings
from tasks.eligibility import attempts_left, with_metadata
from tasks.exceptions import TaskError
from tasks.expressions import Later
from tasks.moving import Requeued, cancel_many, requeue_many

STATUSES = ("invisible", "pending", "running", "completed", "canceled", "errored")
TERMINAL = ("completed", "canceled", "errored")

# Tasks that one call cancels or requeues, the most urgent first; what is left is for the next.
MOST = 10_000

# Dead letters that become due in a minute.
SLOWEST, FASTEST = 0.1, 1_000_000


class TaskQuerySet(QuerySet[Any]):
    """Tasks, found by what they are to those who use queues."""

    def with_status(self, *statuses: str) -> "TaskQuerySet":
        """Tasks of any of these statuses; one that is shared has the status that its parts give it."""
        wanted = Q(pk__in=[])
        for status in statuses:
            if status not in STATUSES:
                raise TaskError(f"{status!r} is no status; there are {', '.join(STATUSES)}")
            for way in self._ways(status):
                wanted |= way
        return self.filter(wanted)

    def with_metadata(self, metadata: dict[str, Any]) -> "TaskQuerySet":
        """Tasks that have all of these pairs."""
        found: TaskQuerySet = with_metadata(self, metadata)
        return found

    def older_than(self, seconds: float) -> "TaskQuerySet":
        """Tasks that were published longer ago."""
        return self.filter(created__lt=Later(-seconds))

    def held_by(self, worker: str) -> "TaskQuerySet":
        """Tasks that a worker holds."""
        held = self._runs.filter(worker=worker, ended=None, task=OuterRef("pk"), token=OuterRef("state_claim"))
        return self.filter(Exists(held), state_claim__isnull=False)

    def had_by(self, worker: str) -> "TaskQuerySet":
        """Tasks that a worker has ever claimed."""
        return self.filter(Exists(self._runs.filter(worker=worker, task=OuterRef("pk"))))

    def in_order(self) -> "TaskQuerySet":
        """In the order in which they are claimed: the most urgent first, of equals the first."""
        return self.order_by("priority", "pk")

    def dead_letters(self) -> "TaskQuerySet":
        """Tasks that ended without success and are left for people; not the parts of shared ones."""
        return self.filter(state="errored", whole=None)

    def cancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> int:
        """Cancel those that wait, and with ``running`` those that are held, in batches; return how many.

        At most 10,000 in one call.
        """
        statuses = ("invisible", "pending", "running") if running else ("invisible", "pending")
        meant = self.with_status(*statuses)
        return cancel_many(self._every, meant._urgent(), actor=actor, reason=reason, running=running)

    def requeue(self, reason: str = "", *, actor: str = "", per_minute: float | None = None) -> Requeued:
        """Have the dead letters among them wait again with all their attempts, in batches; say how many.

        ``per_minute``: so many become due in a minute, in their order, so that what they need is not overrun; without
        it all do at once. At most 10,000 in one call.
        """
        if per_minute is not None and not SLOWEST <= per_minute <= FASTEST:
            raise TaskError(f"per_minute={per_minute!r} must be a number from {SLOWEST} to {FASTEST:,}, or None")
        pks = self.dead_letters()._urgent()
        return requeue_many(self._every, pks, actor=actor, reason=reason, per_minute=per_minute)

    async def acancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> int:
        """As :meth:`cancel`, for async code."""
        return await sync_to_async(self.cancel)(reason, actor=actor, running=running)

    async def arequeue(self, reason: str = "", *, actor: str = "", per_minute: float | None = None) -> Requeued:
        """As :meth:`requeue`, for async code."""
        return await sync_to_async(self.requeue)(reason, actor=actor, per_minute=per_minute)

    def bury(self, queue: Any = None) -> int:
        """Have tasks errored that nobody holds and that have no attempts left; return how many.

        Whoever ends the last claim of a task does so; here are those whose last lease ran out. Index
        ``tasks_task_attempted``.
        """
        tried = self.filter(state="pending", state_claim=None, state_attempts__gt=0)
        tried = tried if queue is None else tried.filter(queue=queue)
        used_up = tried.exclude(attempts_left(load_settings(), queue))
        return move_rows(used_up, "errored", reason="no attempts left")

    def parts_with_status(self, status: str) -> Iterator["TaskQuerySet"]:
        """Those of one status in parts, each of which an index has together."""
        for way in self._ways(status):
            yield self.filter(way)

    def _ways(self, status: str) -> list[Q]:
        """What a task of this status may be: one thing or another."""
        if status in TERMINAL:
            # Nobody holds or claims these, which says that index ``st_rest`` has them all.
            return [Q(state=status, state_ready=False, state_claim=None)]
        parts: QuerySet[Any] = QuerySet(self.model, using=self.db).filter(whole=OuterRef("pk"), state="pending")
        held, hidden = Q(state_claim__isnull=False), Q(state_ready=False, state_next_attempt__gt=Now())
        running, waiting = Exists(parts.filter(held)), Exists(parts.filter(~held & ~hidden))
        free, resting = Q(state="pending", state_claim=None), Q(state_ready=False)
        # Before what is asked of parts, or it would be asked of every task.
        shared = Q(state="shared", state_ready=False, state_claim=None)
        if status == "running":
            return [Q(held, state="pending"), shared & Q(running)]
        if status == "pending":
            due = [
                Q(state_ready=True),
                resting & Q(state_next_attempt=None),
                resting & Q(state_next_attempt__lte=Now()),
            ]
            return [*(free & way for way in due), shared & ~Q(running) & Q(waiting)]
        return [free & hidden, shared & ~Q(running) & ~Q(waiting)]

    def _urgent(self) -> list[Any]:
        return list(self.in_order().values_list("pk", flat=True)[:MOST])

    @property
    def _every(self) -> "TaskQuerySet":
        rows: TaskQuerySet = self.model.objects.using(
            getattr(self, "_db", None) or router.db_for_write(self.model, **getattr(self, "_hints", {}))
        )
        return rows

    @property
    def _runs(self) -> QuerySet[Any]:
        return QuerySet(self.model.runs.rel.related_model, using=self.db)
