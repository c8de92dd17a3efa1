"""Queries for tasks by status, metadata, age and worker; canceling and requeuing many."""

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from django.db.models import Exists, OuterRef, Q, QuerySet

from stator.asynchronous import in_thread
from stator.models import Action, Now, ids_of, move_rows, tokens_of, written_to
from tasks.conf import load_settings
from tasks.exceptions import TaskError
from tasks.queue.eligibility import attempts_left, of_known, of_own_queue, with_metadata
from tasks.queue.operator_actions import Requeued, cancel_many, cancelable, requeue_many
from tasks.queue.task_parts import KIND, AuthorAndReason
from tasks.rows.clock import Later
from tasks.rows.queues import QueueRow
from tasks.rows.runs import Run
from tasks.rows.tables import run_rows
from tasks.rows.tasks import NO_PART, TERMINAL

if TYPE_CHECKING:
    from tasks.models import Task  # noqa: F401 - the base class names it

STATUSES = ("invisible", "pending", "running", "completed", "canceled", "errored")

# The most tasks that one call cancels or requeues, the most urgent first.
MAX_TASKS = 10_000

# The bounds of ``per_minute``.
SLOWEST, FASTEST = 0.1, 1_000_000


class TaskQuerySet(QuerySet["Task"]):
    """Tasks by status, metadata, age or worker."""

    def with_status(self, *statuses: str) -> "TaskQuerySet":
        """Return tasks with any of these statuses; the status of a shared task follows from its parts."""
        wanted = Q(pk__in=[])
        for status in statuses:
            if status not in STATUSES:
                raise TaskError(f"{status!r} is not a status; choose from {', '.join(STATUSES)}")
            for condition in self._conditions(status):
                wanted |= condition
        return self.filter(wanted)

    def with_metadata(self, metadata: Mapping[str, object]) -> "TaskQuerySet":
        """Return tasks whose metadata has all of these names and values."""
        return with_metadata(self, metadata) if metadata else self

    def older_than(self, seconds: float) -> "TaskQuerySet":
        """Return tasks that were published more than ``seconds`` ago."""
        return self.filter(created__lt=Later(-seconds))

    def held_by(self, worker: str) -> "TaskQuerySet":
        """Return tasks that the worker with this name holds, be it a program or a worker process."""
        held = self._runs.filter(worker=worker, ended=None, task=OuterRef("pk"), token=OuterRef("state_claim"))
        tokens = [Q(state_claim__range=tokens_of(each)) for each in ids_of(worker, str(self.db))]
        return self.filter(reduce(or_, tokens, Q(Exists(held))), state_claim__isnull=False)

    def had_by(self, worker: str) -> "TaskQuerySet":
        """Return tasks that a named worker has ever claimed."""
        return self.filter(Exists(self._runs.filter(worker=worker, task=OuterRef("pk"))))

    def in_order(self) -> "TaskQuerySet":
        """Return tasks in the order of claims: by priority, then by id."""
        return self.order_by("priority", "pk")

    def dead_letters(self) -> "TaskQuerySet":
        """Return dead letters: errored tasks, without the parts of shared ones. Index ``st_rest``."""
        return self.filter(*self._conditions("errored"), NO_PART)

    def cancel(self, reason: str = "", *, actor: str = "", running: bool = False, action: Action | None = None) -> int:
        """Cancel waiting tasks, and with ``running`` also claimed ones, in batches; return how many.

        One call cancels up to 10,000 tasks, the most urgent first. ``action``: a manual action of which this is a part;
        else it is one of its own.
        """
        action = action or Action.of(self.model, "cancel", actor, reason, moves=True)
        chosen = self.with_status(*cancelable(running))
        return cancel_many(self._all_tasks, chosen._urgent(), running=running, **_author_and_reason(action))

    def requeue(
        self,
        reason: str = "",
        *,
        actor: str = "",
        per_minute: float | None = None,
        action: Action | None = None,
        start_over: bool = False,
    ) -> Requeued:
        """Requeue the dead letters among these tasks with all their attempts, in batches; return how many.

        ``per_minute``: how many become due per minute, to protect the services that they use; None: all become due at
        once. One call requeues up to 10,000 tasks, the most urgent first. ``action``: as of :meth:`cancel`.
        ``start_over``: recorded steps are run again, with new idempotency keys; otherwise the tasks go on after them.
        """
        if per_minute is not None and not SLOWEST <= per_minute <= FASTEST:
            raise TaskError(f"per_minute={per_minute!r} must be a number from {SLOWEST} to {FASTEST:,}, or None")
        pks = self.dead_letters()._urgent()
        action = action or Action.of(self.model, "requeue", actor, reason, moves=True)
        return requeue_many(
            self._all_tasks, pks, per_minute=per_minute, start_over=start_over, **_author_and_reason(action)
        )

    acancel = in_thread(cancel)
    arequeue = in_thread(requeue)

    def end_exhausted(self, queue: QueueRow | None = None) -> int:
        """Move unclaimed tasks without attempts left to errored; return how many.

        This is for tasks whose last lease ran out; a worker that ends its claim moves the task itself. Index
        ``tasks_task_attempted``.
        """
        tried = self.filter(state="pending", state_claim=None, state_attempts__gt=0)
        tried = tried if queue is None else tried.filter(queue=queue)
        used_up = tried.exclude(attempts_left(load_settings(), of_known(queue) if queue else of_own_queue))
        return move_rows(used_up, "errored", reason="no attempts left")

    def parts_with_status(self, status: str) -> Iterator["TaskQuerySet"]:
        """Yield the tasks with this status in disjoint parts; one index finds each part."""
        for condition in self._conditions(status):
            yield self.filter(condition)

    def _conditions(self, status: str) -> list[Q]:
        """Return conditions; a task has this status if it meets one of them."""
        if status in TERMINAL:
            # These columns tell the planner that the index ``st_rest`` has all such tasks.
            return [Q(state=status, state_ready=False, state_claim=None)]
        held, hidden = Q(state_claim__isnull=False), Q(state_ready=False, state_next_attempt__gt=Now())
        free, resting = Q(state="pending", state_claim=None), Q(state_ready=False)
        of_parts = KIND.parts.status_conditions(self, status)
        if status == "running":
            return [Q(held, state="pending"), *of_parts]
        if status == "pending":
            due = [
                Q(state_ready=True),
                resting & Q(state_next_attempt=None),
                resting & Q(state_next_attempt__lte=Now()),
            ]
            return [*(free & condition for condition in due), *of_parts]
        return [free & hidden, *of_parts]

    def _urgent(self) -> list[int]:
        return list(self.in_order().values_list("pk", flat=True)[:MAX_TASKS])

    @property
    def _all_tasks(self) -> "TaskQuerySet":
        return self.model.objects.using(written_to(self))

    @property
    def _runs(self) -> QuerySet[Run]:
        return run_rows(self.db)


def _author_and_reason(action: Action) -> AuthorAndReason:
    return {"actor": action.actor, "reason": action.reason, "action": action}
