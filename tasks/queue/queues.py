"""Queues: their rules, and methods to publish and claim."""

import logging
from collections.abc import Collection, Iterable, Mapping
from types import EllipsisType
from typing import Any, Unpack

from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError

from stator.asynchronous import awaited, in_thread
from stator.texts import JsonInput
from tasks.extensions.batches.joining import joining
from tasks.extensions.batches.models import Batch
from tasks.extensions.consume.verbs import Consumes
from tasks.extensions.queue_pauses.pausing import QueuePausing
from tasks.queue import held_claims, publishing, rules, waiting
from tasks.queue.held_claims import TaskClaim
from tasks.queue.publishing import OnExistingKey, Publish, Published
from tasks.rows.databases import settle
from tasks.rows.queues import QueueRow

logger = logging.getLogger("tasks.queues")

# What tasks are made by, so it cannot change.
MADE_AS = ("kind", "exclusive_key", "spread")


class Queue(
    Consumes,  # tasks.extensions.consume
    QueuePausing,  # tasks.extensions.queue_pauses
    QueueRow,
):
    """A queue of tasks, with defaults for tasks that set no value of their own. Durations are in seconds.

    An exclusive queue has an ``exclusive_key``, fixed at creation. The metadata of every task in it has a value under
    this key, and at most one task per value runs at a time. If a rule is empty, the project's setting applies.

    ``spread``, fixed at creation: its tasks are in all parts of a table that ``Distribute`` has divided. Claims take
    the most urgent tasks of one part after the other.
    """

    # The values of ``MADE_AS`` when it was last read or saved; None if it is new or the value was not read.
    _made_as: tuple[object, ...] = (None,) * len(MADE_AS)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the queue; raise ``ValidationError`` for changes that existing tasks rule out."""
        if any(was not in (None, getattr(self, name)) for was, name in zip(self._made_as, MADE_AS, strict=True)):
            raise ValidationError("kind, exclusive_key and spread of a queue cannot be changed; create another queue")
        if "name" in self.__dict__ and (wrong := rules.queue_name_problem(self.name)):
            raise ValidationError({"name": wrong})
        self._check_rules()
        super().save(*args, **kwargs)
        self._note_made_as()

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[object], **kwargs: Any
    ) -> "Queue":
        queue = super().from_db(db, field_names, values, **kwargs)
        settle(queue)
        queue._note_made_as()
        return queue

    def _note_made_as(self) -> None:
        # A deferred field is unknown.
        self._made_as = tuple(self.__dict__.get(name) for name in MADE_AS)

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Run Django's checks; raise ``ValidationError`` also for a name that no queue can have."""
        super().clean_fields(exclude=exclude)
        if "name" not in (exclude or ()) and (wrong := rules.queue_name_problem(self.name)):
            raise ValidationError({"name": wrong})

    def clean(self) -> None:
        """Raise ``ValidationError`` for rules that no task could follow."""
        self._check_rules()

    def _check_rules(self) -> None:
        if problems := rules.problems(self):
            raise ValidationError(problems)

    # Publishing

    def publish(
        self,
        action: str,
        data: JsonInput | EllipsisType = ...,
        *,
        update: bool = False,
        clear_failed: bool = False,
        clear_succeeded: bool = False,
        known_only: bool = False,
        batch: Batch | None = None,  # tasks.extensions.batches
        **options: object,
    ) -> Published:
        """Publish one task; return it with its outcome, or raise :class:`~tasks.exceptions.PublishRefused`.

        ``data``: any JSON; if left out, null.

        ``options``: the other fields of ``tasks.messages.Message``, such as ``key``, ``priority`` and ``lease``; the
        guide on queues says what they mean.

        If a task with this ``key`` exists: ``update`` writes the given values into it if it waits, and leaves its other
        values as they are; None stands for the value of the queue or the setting. ``clear_failed`` and
        ``clear_succeeded`` let the workers that failed, or succeeded, run it again. ``known_only``: refuse an action
        that this code does not register. ``batch``: see :meth:`publish_many`.
        """
        message = {"action": action, **({} if data is ... else {"data": data}), **options}
        return self.publish_many(
            [message], update=update, clear_failed=clear_failed, clear_succeeded=clear_succeeded, known_only=known_only,
            batch=batch,  # tasks.extensions.batches
        )[0]  # fmt: skip

    def publish_many(
        self,
        tasks: Iterable[Mapping[str, object]],
        *,
        update: bool = False,
        clear_failed: bool = False,
        clear_succeeded: bool = False,
        known_only: bool = False,
        batch: Batch | None = None,  # tasks.extensions.batches
    ) -> list[Published]:
        """Publish tasks, each a dictionary of arguments of :meth:`publish`, in few statements: all or none.

        ``batch``: the :class:`~tasks.models.Batch` of these tasks: a new one, which ends with the last of them, or one
        that has not ended. Existing tasks of the same keys join it.
        """
        on_existing = OnExistingKey(update=update, clear_failed=clear_failed, clear_succeeded=clear_succeeded)
        publish: Publish = publishing.publish
        publish = joining(batch) or publish  # tasks.extensions.batches
        return publish(self, tasks, on_existing, known_only=known_only)

    apublish = in_thread(publish)
    apublish_many = in_thread(publish_many)

    # Claiming

    def claim(
        self,
        *,
        worker: str,
        limit: int = 1,
        lease: float | None = None,
        metadata: Mapping[str, object] | None = None,
        wait: float = 0.0,
    ) -> list[TaskClaim]:
        """Claim up to ``limit`` tasks for a worker, the most urgent first; return an empty list if it may claim none.

        ``lease``: seconds until the claim ends without a heartbeat; by default the lease of the task, the queue or the
        setting. ``metadata``: claim only tasks with all of these names and values. ``wait``: seconds to wait for the
        first task; not inside a transaction. From an exclusive queue it claims at most one task per value; from a queue
        with ``one_per_worker``, one task in all.
        """
        return waiting.claim(self, wait, worker=worker, limit=limit, lease=lease, metadata=metadata)

    @awaited
    async def aclaim(self, *, wait: float = 0.0, **options: Unpack[waiting.ClaimOptions]) -> list[TaskClaim]:
        """Run :meth:`claim` from async code."""
        return await waiting.aclaim(self, wait=wait, **options)

    resolve_many, fail_many = staticmethod(held_claims.resolve_many), staticmethod(held_claims.fail_many)
    aresolve_many = staticmethod(sync_to_async(held_claims.resolve_many))
    afail_many = staticmethod(sync_to_async(held_claims.fail_many))
