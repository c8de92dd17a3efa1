"""Batches: tasks that are done together. The last one's end moves the batch, which then publishes an action."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, cast

from django.db import models, transaction
from django.db.models import Model, Q, QuerySet

from stator.asynchronous import in_thread
from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.models import MomentField, Now, Portion, StateField, StatorModel, move_rows, remembered
from stator.texts import JsonObject
from tasks.exceptions import MoveRefused, PublishRefused, QueuePaused, TaskError
from tasks.extensions.batches.context import BATCH_KEY
from tasks.graph import TaskGraph
from tasks.messages import NAME_LENGTH, check_text
from tasks.queue import publishing
from tasks.queue.operator_actions import Requeued
from tasks.queue.publishing import OnExistingKey, Published, PublishOutcome
from tasks.queue.task_parts import KIND
from tasks.rows.tables import locked, task_model, task_rows
from tasks.rows.tasks import TERMINAL

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from tasks.models import Queue, Task
    from tasks.querysets import TaskQuerySet

# The seconds after which a batch of a queue that is paused tries to publish its action again.
PAUSED = 60.0

# The columns of the actions that a batch publishes.
ACTIONS = ("on_done", "on_failed", "on_first_failure")

# Tasks of one status are counted up to this number, by the index over batch and state.
MAX_COUNTED = 1_000_000

# A batch takes tasks in these states; in the second it ends with its last task.
OPEN = ("filling", "running")
# The states before its end.
UNENDED = (*OPEN, "ending")
# The states of its tasks before their end.
UNENDED_TASKS = [name for name in TaskGraph.states if name not in TERMINAL]

Message = JsonObject


class BatchGraph(StateGraph):
    """The graph of all batches.

    A ``filling`` batch takes tasks and does not end. A ``running`` one ends with its last task, in the transaction of
    that task's move; a new batch begins so if all its tasks are new. ``ending`` publishes its action. A ``failed`` one
    runs again when a dead letter is requeued.
    """

    filling = State(externally_progressed=True, force_initial=True)
    running = State(externally_progressed=True, enter_by_hand=False)
    ending = State(try_interval=10, atomic=True, saves=["counted"], enter_by_hand=False)
    done = State(enter_by_hand=False, leave_by_hand=False)
    failed = State(externally_progressed=True, enter_by_hand=False)
    canceled = State(enter_by_hand=False, leave_by_hand=False)

    filling.transitions_to(running, canceled)
    running.when_all("tasks", in_=TERMINAL, empty=True).to(ending)
    running.transitions_to(canceled)
    ending.transitions_to(running, done, failed, canceled)
    failed.when_any("tasks", in_=UNENDED_TASKS).to(running)
    failed.transitions_to(canceled)

    @classmethod
    def handle_ending(cls, batch: "Batch") -> State:
        """Publish the batch's action, in the transaction of its move."""
        counts = batch.count_now()
        if counts["pending"] or counts["running"]:
            # A dead letter was requeued meanwhile.
            return cls.running
        batch.counted = counts
        if counts["errored"]:
            batch.tell_first_failure()
        to = cls.failed if counts["errored"] else cls.done
        batch.publish_action("on_failed" if to is cls.failed else "on_done")
        return to


class Batch(StatorModel):
    """Tasks of one queue that are done together; ``queue.publish_many(tasks, batch=Batch(...))`` publishes them.

    ``on_done``: the action to publish once no task is left to do and none is errored: its name, or a dictionary of
    arguments of ``publish()``. Its task has the number of the batch in ``metadata["batch"]``, and without ``data`` also
    gets it as ``batch``.
    ``on_failed``: the same if some tasks are errored; each time the batch ends so.
    ``on_first_failure``: the same as soon as the first task is errored; once for each batch.
    ``key``: the publisher's own name for the batch, unique in the queue.
    """

    # No index of its own: the unique index of the keys begins with the queue.
    queue: "models.ForeignKey[Queue, Queue]" = models.ForeignKey(
        "tasks.Queue", models.CASCADE, related_name="batches", editable=False, db_index=False
    )
    key = models.CharField(max_length=NAME_LENGTH, null=True, blank=True)  # noqa: DJ001 - null is unique for each batch
    on_done = models.JSONField(null=True, blank=True)
    on_failed = models.JSONField(null=True, blank=True)
    on_first_failure = models.JSONField(null=True, blank=True)
    # When ``on_first_failure`` was published.
    first_failure = MomentField(null=True, editable=False)
    # Whether a program made it over HTTP: its actions are published as if over HTTP, too.
    over_http = models.BooleanField(default=False, db_default=False, editable=False)
    # The counts when it last ended, since ended tasks are deleted after their retention.
    counted = models.JSONField(null=True, editable=False)
    created = MomentField(db_default=Now(), editable=False)

    state = StateField(BatchGraph)

    # The related manager, which Django adds with the model of tasks.
    tasks: "RelatedManager[Task]"
    queue_id: int | None

    objects: ClassVar["QuerySet[Batch]"] = cast("QuerySet[Batch]", QuerySet.as_manager())

    class StatorMeta:
        """History is on."""

        history = True  # stator.extensions.reports

    class Meta:
        verbose_name_plural = "batches"
        constraints = [models.UniqueConstraint(fields=["queue", "key"], name="tasks_batch_one_per_key")]
        indexes = [
            # Batches whose ``on_first_failure`` may have to be published.
            models.Index(
                fields=["id"],
                condition=Q(on_first_failure__isnull=False, first_failure=None),
                name="tasks_batch_first_failure",
            )
        ]

    def __str__(self) -> str:
        return f"batch {self.key or self.pk}"

    def counts(self) -> dict[str, int]:
        """Return how many tasks it has in ``total``, and how many of each status, up to a million of each.

        After its end: the counts at its end. ``pending`` tasks may be due later. Index ``tasks_task_in_batch``.
        """
        if self.state in ("done", "failed") and self.counted:
            return dict(self.counted)
        return self.count_now()

    def count_now(self) -> dict[str, int]:
        """Return the counts of the tasks that exist now."""
        mine: QuerySet[Model] = task_rows(self._state.db).filter(batch=self.pk).order_by()
        held = Q(state_claim__isnull=False)
        conditions = {
            "pending": ~held & Q(state__in=UNENDED_TASKS),
            "running": held,
            **{state: Q(state=state) for state in TERMINAL},
        }
        counts = {name: mine.filter(each)[:MAX_COUNTED].count() for name, each in conditions.items()}
        return {"total": sum(counts.values()), **counts}

    @property
    def progress(self) -> Portion:
        """How many of its tasks have ended, for a bar."""
        counts = self.counts()
        said = [f"{counts[state]:,} {state}" for state in ("errored", "canceled") if counts[state]]
        ended = sum(counts[state] for state in TERMINAL)
        return Portion(done=ended, total=counts["total"] or None, text=", ".join(said))

    @classmethod
    def open(cls, queue: "Queue", **options: object) -> "Batch":
        """Return a new batch that takes tasks of several calls and does not end before :meth:`close`.

        If a batch with this ``key`` exists, return that one.
        """
        batch = cls(**options)
        with transaction.atomic(using=queue._state.db):
            batch.begin(queue)
        return batch

    def close(self) -> None:
        """Let an open batch end with its last task; any other one stays as it is."""
        with self._remembered():
            move_rows(self._row.filter(state=BatchGraph.filling.name), BatchGraph.running, reason="closed")
            self.refresh_from_db(self._state.db)

    def cancel(self, reason: str = "", *, actor: str = "", running: bool = False) -> int:
        """Cancel the batch, then its waiting tasks, and with ``running`` also claimed ones; return how many tasks.

        It publishes nothing. Raise :class:`~tasks.exceptions.MoveRefused` for a batch that is done.
        """
        done = BatchGraph.done.name
        with self._remembered():
            move_rows(self._row.exclude(state__in=[done, "canceled"]), BatchGraph.canceled, actor=actor, reason=reason)
            self.refresh_from_db(self._state.db)
        if self.state == done:
            raise MoveRefused(f"{self} is done; only a batch that is not done can be canceled")
        canceled = 0
        while count := self._tasks.cancel(reason, actor=actor, running=running):
            canceled += count
        return canceled

    def requeue(
        self, reason: str = "", *, actor: str = "", per_minute: float | None = None, start_over: bool = False
    ) -> Requeued:
        """Requeue up to 10,000 of its dead letters, after which a failed batch runs again; return how many.

        Raise :class:`~tasks.exceptions.MoveRefused` for a batch that is done or canceled.
        """
        with self._remembered():
            self.refresh_from_db(self._state.db)
            if self.state_graph.states[self.state].terminal:
                raise MoveRefused(f"{self} is {self.state}; requeue its tasks one by one")
            count = self._tasks.requeue(reason, actor=actor, per_minute=per_minute, start_over=start_over)
            self.refresh_from_db(self._state.db)
        return count

    acancel = in_thread(cancel)
    arequeue = in_thread(requeue)

    def begin(self, queue: "Queue", state: State = BatchGraph.filling) -> bool:
        """Write a new batch, unless its key exists, or check that this one fits the queue; return whether it is new.

        ``state``: of a new batch.
        """
        if not self._state.adding:
            if (self.queue_id, self._state.db) != (queue.pk, queue._state.db):
                raise PublishRefused(f"{self} is not of queue {queue.name}; a batch has tasks of one queue")
            return False
        self._check_key()
        with remembered(str(queue._state.db), [self]):
            for name in ACTIONS:
                setattr(self, name, self._checked(queue, name))
            given = {"state": state.name, **{name: getattr(self, name) for name in (*ACTIONS, "over_http")}}
            rows: QuerySet[Batch] = QuerySet(type(self), using=queue._state.db)
            if self.key is None:
                row, new = rows.create(queue_id=queue.pk, **given), True
            else:
                row, new = rows.get_or_create(queue_id=queue.pk, key=self.key, defaults=given)
            self.__dict__.update(row.__dict__)
        return new

    def take(self, published: list[Published]) -> None:
        """Add existing tasks that were published again, and check that the batch still takes tasks if some are new.

        Tasks are locked before their batch, as by their moves.
        """
        is_new = any(each.outcome == PublishOutcome.INSERTED for each in published)
        others = [each.task for each in published if each.task.batch_id != self.pk]
        if taken := next((task for task in others if task.batch_id is not None), None):
            raise PublishRefused(f"task {taken.pk} of key {taken.key!r} is in batch {taken.batch_id}, not in this one")
        if others:
            # A worker that holds one of them does not know its batch, so a pass of a worker may have to end the batch.
            mine = task_rows(self._state.db).filter(pk__in={task.pk for task in others}, batch=None)
            KIND.parts.lock(mine)
            mine.update(batch=self)
            with remembered(str(self._state.db), others):
                for task in others:
                    # Not the object, which Django would keep beside the column.
                    task.batch_id = self.pk
        state = locked(self._row).values_list("state", flat=True).first()
        if (is_new or others) and state not in OPEN:
            why = f"is {state} and takes no more tasks" if state else "is gone"
            raise PublishRefused(f"{self} {why}; publish them in a new batch")

    def tell_first_failure(self) -> None:
        """Publish ``on_first_failure``, unless that was done or the batch is canceled; call it in a transaction.

        One of several concurrent calls publishes.
        """
        untold = self._row.filter(on_first_failure__isnull=False, first_failure=None)
        if untold.exclude(state=BatchGraph.canceled.name).update(first_failure=Now()):
            self.publish_action("on_first_failure")

    def publish_action(self, name: str) -> None:
        """Publish one of its actions, once for each time that it ends, or that its first task fails."""
        message = getattr(self, name)
        if message is None:
            return
        message = self._with_number(message)
        message["key"] = f"{BATCH_KEY}{self.pk}:{'first' if name == 'on_first_failure' else self.state_version}"
        try:
            publishing.publish(self.queue, [message], OnExistingKey(), over_http=self.over_http)
        except QueuePaused as paused:
            raise TryAgainLater(PAUSED, str(paused)) from None

    def _check_key(self) -> None:
        if self.key is None:
            return
        try:
            check_text("batch key", self.key)
        except TaskError as error:
            raise PublishRefused(str(error)) from None

    def _checked(self, queue: "Queue", name: str) -> JsonObject | None:
        """Return one of its actions as a dictionary; raise ``PublishRefused`` if it cannot be published."""
        message = {"action": given} if isinstance(given := getattr(self, name), str) else given
        if message is None:
            return None
        if not isinstance(message, dict) or "key" in message:
            raise PublishRefused(f"{name} must be the name of an action, or a dictionary of its options without a key")
        try:
            publishing.check(queue, self._with_number(message), over_http=self.over_http)
        except TaskError as error:
            raise type(error)(f"{name}: {error}") from None
        return message

    def _with_number(self, message: Message) -> Message:
        """Return a message with the number of the batch, so that its task learns of which batch it is told."""
        number, metadata = {"batch": self.pk or 0}, message.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            # Refused as of any message.
            return {"data": number, **message}
        return {"data": number, **message, "metadata": {**(metadata or {}), **number}}

    def _remembered(self) -> AbstractContextManager[None]:
        return remembered(str(self._state.db), [self])

    @property
    def _row(self) -> QuerySet["Batch"]:
        return QuerySet(type(self), using=self._state.db).filter(pk=self.pk)

    @property
    def _tasks(self) -> "TaskQuerySet":
        return task_model().objects.using(self._state.db).filter(batch=self.pk)
