"""The models of tasks and of their runs; this module also exports the other models of the app."""

from collections.abc import Collection
from datetime import datetime
from typing import ClassVar, cast

from django.db.models import F

from stator.asynchronous import in_thread
from stator.models import StateField, name_of, worker_of
from stator.texts import Json
from tasks.extensions.api.models import Consumer
from tasks.extensions.batches.models import Batch
from tasks.extensions.problems import verbs
from tasks.extensions.schedules.rates import Rate
from tasks.extensions.schedules.schedules import Schedule
from tasks.extensions.throttles.models import ActionRate, ActionSlot
from tasks.graph import TaskGraph
from tasks.querysets import TaskQuerySet
from tasks.queue import operator_actions, publishing, runs
from tasks.queue.attempt_counts import attempts_of
from tasks.queue.queues import Queue
from tasks.queue.task_parts import KIND
from tasks.rows.claimants import Claimant
from tasks.rows.databases import settle
from tasks.rows.runs import NO_REJECTIONS, Run
from tasks.rows.tasks import TaskRow

__all__ = [
    "ActionRate",  # tasks.extensions.throttles
    "ActionSlot",  # tasks.extensions.throttles
    "Batch",  # tasks.extensions.batches
    "Claimant",
    "Consumer",  # tasks.extensions.api
    "Queue",
    "Rate",  # tasks.extensions.schedules
    "Run",
    "Schedule",  # tasks.extensions.schedules
    "Task",
]  # fmt: skip


class Task(TaskRow):
    """One piece of work: the name of an action and its data.

    ``priority``: smaller is sooner; by default the Unix time in milliseconds at publication.
    ``key``: the publisher's own name for the task, unique in the queue.
    ``metadata``: names and values for claims and searches.
    ``worker_ids``: the only workers that may claim it; empty: any worker.
    ``worker_count``: how many workers run it, each named worker once. If there are several, the task is ``shared`` and
    workers claim its ``parts``.
    ``timeout``: seconds after which an attempt is ended, heartbeats or not, counted from a named worker's claim, or
    from the call in a worker process.

    ``lease``, ``timeout``, ``max_attempts`` and ``retention`` override the queue's values.
    """

    state = StateField(TaskGraph)

    objects: ClassVar[TaskQuerySet] = cast(TaskQuerySet, TaskQuerySet.as_manager())

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[object], **kwargs: object
    ) -> "Task":
        task = super().from_db(db, field_names, values, **kwargs)
        settle(task)
        return task

    # Workers read claimed tasks in the database where these are written, so they skip this method.
    from_db.__func__.only_notes = True  # type: ignore[attr-defined]

    @property
    def attempts(self) -> int:
        """The number of claims since the task was published or requeued; it stays after the task has ended.

        A shared task has the attempts of its parts.
        """
        return attempts_of([self], self._state.db)[self.pk]

    @property
    def claimant(self) -> str | None:
        """The name of the worker that holds the task."""
        if not self.state_claim:
            return None
        run = self.runs.filter(token=self.state_claim).first()
        return run.worker if run else name_of(worker_of(self.state_claim), self._state.db)

    @property
    def claimed_at(self) -> datetime | None:
        """When the current holder claimed the task."""
        return self.state_attempted if self.state_claim else None

    @property
    def rejected_by(self) -> list[str]:
        """The names of the workers that gave up or lost the task, or parts of a shared one, in order.

        A worker that canceled the task is none of them.
        """
        others = runs.of_task(self).exclude(outcome__in=["succeeded", *NO_REJECTIONS])
        ended = others.exclude(token=F("task__state_claim"))
        return list(dict.fromkeys(ended.order_by("pk").values_list("worker", flat=True)))

    @property
    def results(self) -> list[Json]:
        """The results: at most one, or for a shared task one for each completed part."""
        return [row.result for row in KIND.parts.completed(self)]

    def cancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> None:
        """Cancel the task and its parts; raise :class:`~tasks.exceptions.MoveRefused` unless it waits.

        ``running``: also cancel a task that a worker holds; the worker learns this at its next heartbeat.
        """
        operator_actions.cancel(self, actor=actor, reason=reason, running=running)

    def requeue(self, reason: str = "", *, actor: str = "", start_over: bool = False) -> None:
        """Make an errored task wait again, with all its attempts; raise ``MoveRefused`` for any other task.

        Its recorded steps and its idempotency key stay. ``start_over``: the steps are run again, with new keys.
        """
        operator_actions.requeue(self, actor=actor, reason=reason, start_over=start_over)

    def change(self, **options: object) -> None:
        """Change options of a task that has not ended, even while a worker holds it; options that are not given stay.

        ``worker_ids``, ``timeout``, ``heartbeat_interval``, ``lease``, ``max_attempts``, ``max_unexpected_retries``,
        ``priority`` and ``retention``; None stands for the value of the queue or the setting. The guide says when each
        takes effect. Raise ``MoveRefused`` if the task has ended, and ``TaskError`` for an invalid value.
        """
        publishing.change(self, options)

    achange = in_thread(change)
    acancel = in_thread(cancel)
    arequeue = in_thread(requeue)

    explain = verbs.explain  # tasks.extensions.problems
