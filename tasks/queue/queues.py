"""Queues: their rules, and methods to publish, claim and pause."""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import connections, models, transaction
from django.db.models import Exists, Q, QuerySet, Value
from django.utils import timezone

from stator.models import MomentField, Now
from tasks.conf import LONGEST
from tasks.datetimes import moment_problem, stored
from tasks.exceptions import TaskError
from tasks.queue import consuming, held_claims, publishing, rules
from tasks.queue.claimants import CLAIMANT_ALIVE, MOST_CLAIMANTS, SEEN_EVERY, Claimant
from tasks.queue.claiming import TaskClaim
from tasks.queue.expressions import Later
from tasks.queue.publishing import OnExistingKey, Published
from tasks.sharding import replicas, shards
from tasks.sharding.task_ids import home, settle

logger = logging.getLogger("tasks.queues")


def label_of(queue: str) -> str:
    """Return the label of a queue in the framework's statistics, beside those of models."""
    return f"tasks.task:{queue}"


class Queue(models.Model):
    """A queue of tasks, with defaults for tasks that set no value of their own. Durations are in seconds.

    An exclusive queue has an ``exclusive_key``, fixed at creation. The metadata of every task in it has a value under
    this key, and at most one task per value runs at a time. If a rule is empty, the project's setting applies.

    ``databases``: the aliases of the databases over which its tasks are spread, each with a copy of the queue; empty:
    only the queue's own database.
    """

    class Kind(models.TextChoices):
        """Whether tasks may keep each other from running."""

        SIMPLE = "simple"
        EXCLUSIVE = "exclusive"

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.SIMPLE)
    exclusive_key = models.CharField(max_length=100, blank=True)
    lease = models.FloatField(null=True, blank=True)
    timeout = models.FloatField(null=True, blank=True)
    invisible_for = models.FloatField(null=True, blank=True)
    max_attempts = models.PositiveIntegerField(null=True, blank=True)
    retention = models.FloatField(null=True, blank=True)
    # For errored tasks; empty: the setting's, else the same as ``retention``.
    failed_retention = models.FloatField(null=True, blank=True)
    # Whether a worker that released or failed a task, or lost its lease on it, may claim it again.
    same_worker_again = models.BooleanField(default=False)
    # Without same_worker_again: how often it may all the same. Empty: a named worker never; a worker process leaves the
    # task to others first, and then tries it again.
    worker_retries = models.PositiveSmallIntegerField(null=True, blank=True)
    # Whether a worker may hold only one task of this queue at a time.
    one_per_worker = models.BooleanField(default=False)
    # Whether external programs serve the queue. If so, any action can be published; if not, unknown ones are refused.
    actions_elsewhere = models.BooleanField(default=False)
    # The actions of this site's code that programs may publish over HTTP.
    http_actions = models.JSONField(default=list, db_default=Value([], models.JSONField()), blank=True)
    databases = models.JSONField(default=list, blank=True)
    publish_paused = models.BooleanField(default=False)
    claim_paused = models.BooleanField(default=False)
    pause_reason = models.CharField(max_length=200, blank=True)
    pause_author = models.CharField(max_length=150, blank=True)
    pause_until = models.DateTimeField(null=True, blank=True)
    created = MomentField(db_default=Now(), editable=False)

    _made_as: tuple[Any, Any, Any]
    # For a request over HTTP: whether it is among the queues of the request's token.
    in_reach: bool
    # The related manager, which Django adds with the model of tasks.
    tasks: Any

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="simple", exclusive_key="") | (Q(kind="exclusive") & ~Q(exclusive_key="")),
                name="tasks_queue_key_if_exclusive",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the queue and update its copies; raise ``ValidationError`` for changes that existing tasks rule out."""
        *made_as, databases = self._was
        if any(was not in (None, now) for was, now in zip(made_as, (self.kind, self.exclusive_key), strict=True)):
            raise ValidationError("kind and exclusive_key of a queue cannot be changed; create another queue")
        if self.exclusive != bool(self.exclusive_key):
            raise ValidationError(
                {"exclusive_key": "an exclusive queue needs a key, and only an exclusive one has one"}
            )
        if "name" in self.__dict__ and (wrong := rules.queue_name_problem(self.name)):
            raise ValidationError({"name": wrong})
        self._check_rules()
        using = kwargs.get("using") or self._state.db or home()
        if (self.databases or databases) and using != home():
            raise ValidationError(
                f"this is the copy of queue {self.name} in {using!r}; change the original in {home()!r}"
            )
        replicas.check_change(self, databases)
        super().save(*args, **kwargs)
        self._mirror(databases or [])
        self._note_made_as()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the queue with its copies and the tasks in them."""
        for copy in self.copies() if self.databases else ():
            if copy._state.db != self._state.db:
                copy._row.delete()
        return super().delete(*args, **kwargs)

    @classmethod
    def from_db(cls, db: Any, field_names: Any, values: Any, **kwargs: Any) -> "Queue":
        queue = super().from_db(db, field_names, values, **kwargs)
        settle(queue, is_copy=bool(queue.__dict__.get("databases")))
        queue._note_made_as()
        return queue

    def _note_made_as(self) -> None:
        # A deferred field is unknown.
        kind, key, databases = (self.__dict__.get(name) for name in ("kind", "exclusive_key", "databases"))
        self._made_as = kind, key, databases if databases is None else [*databases]

    @property
    def _was(self) -> tuple[Any, Any, Any]:
        """Its kind, key and databases when it was last read or saved; None if it is new or the value was not read."""
        return self.__dict__.get("_made_as", (None, None, None))

    def _mirror(self, before: list[str]) -> None:
        """Update the copies once the row is committed."""
        if self.databases or before:
            transaction.on_commit(partial(replicas.mirror, self.name, before), using=home())

    def clean_fields(self, exclude: Any = None) -> None:
        """Run Django's checks; raise ``ValidationError`` also for a name that no queue can have."""
        super().clean_fields(exclude=exclude)
        if "name" not in (exclude or ()) and (wrong := rules.queue_name_problem(self.name)):
            raise ValidationError({"name": wrong})

    def clean(self) -> None:
        """Raise ``ValidationError`` for rules that no task could follow."""
        self._check_rules()
        replicas.check_change(self, self._was[-1])

    def _check_rules(self) -> None:
        if problems := rules.problems(self):
            raise ValidationError(problems)

    # Publishing

    def publish(
        self,
        action: str,
        data: Any = ...,
        *,
        update: bool = False,
        clear_failed: bool = False,
        clear_succeeded: bool = False,
        known_only: bool = False,
        **options: Any,
    ) -> Published:
        """Publish one task; return it with its outcome, or raise :class:`~tasks.exceptions.PublishRefused`.

        ``data``: any JSON; if left out, null.

        ``options``: ``key``, ``priority``, ``metadata``, ``lease``, ``timeout``, ``invisible_for``, ``max_attempts``,
        ``retention``, ``heartbeat_interval``, ``max_unexpected_retries``, ``worker_ids``, ``worker_count``.

        If a task with this ``key`` exists: ``update`` writes the given values into it if it waits, and leaves the
        others as they are; None stands for the value of the queue or the setting. ``clear_failed`` and
        ``clear_succeeded`` let the workers that failed, or succeeded, run it again. ``known_only``: refuse an action
        that this code does not register.
        """
        on_existing = OnExistingKey(update=update, clear_failed=clear_failed, clear_succeeded=clear_succeeded)
        message = {"action": action, **({} if data is ... else {"data": data}), **options}
        return publishing.publish(self, [message], on_existing, known_only=known_only)[0]

    def publish_many(
        self,
        tasks: Iterable[dict[str, Any]],
        *,
        update: bool = False,
        clear_failed: bool = False,
        clear_succeeded: bool = False,
        known_only: bool = False,
    ) -> list[Published]:
        """Publish tasks, each a dictionary of arguments of :meth:`publish`, in few statements: all or none."""
        on_existing = OnExistingKey(update=update, clear_failed=clear_failed, clear_succeeded=clear_succeeded)
        return publishing.publish(self, tasks, on_existing, known_only=known_only)

    async def apublish(self, action: str, data: Any = ..., **options: Any) -> Published:
        """Run :meth:`publish` from async code."""
        return await sync_to_async(self.publish)(action, data, **options)

    async def apublish_many(self, tasks: Iterable[dict[str, Any]], **options: Any) -> list[Published]:
        """Run :meth:`publish_many` from async code."""
        return await sync_to_async(self.publish_many)(tasks, **options)

    # Claiming

    def claim(
        self,
        *,
        worker: str,
        limit: int = 1,
        lease: float | None = None,
        metadata: dict[str, Any] | None = None,
        wait: float = 0.0,
    ) -> list[TaskClaim]:
        """Claim up to ``limit`` tasks for a worker, the most urgent first; return an empty list if it may claim none.

        ``lease``: seconds until the claim ends without a heartbeat; by default that of the task, the queue or the
        setting. ``metadata``: claim only tasks with all of these names and values. ``wait``: seconds to wait for the
        first task; not inside a transaction. From an exclusive queue it claims at most one task per value; from a queue
        with ``one_per_worker``, one task in all.
        """
        return consuming.claim(self, wait, worker=worker, limit=limit, lease=lease, metadata=metadata)

    async def aclaim(self, **options: Any) -> list[TaskClaim]:
        """Run :meth:`claim` from async code."""
        return await consuming.aclaim(self, **options)

    def consume(self, *, worker: str, **options: Any) -> consuming.QueueLoop:
        """Return the loop of a named worker, which claims tasks until it is stopped: iterate over it, or ``run`` it.

        ``limit``, ``lease`` and ``metadata`` are those of :meth:`claim`; the other options are those of
        :class:`~tasks.queue.consuming.QueueLoop`.
        """
        return consuming.QueueLoop(self, worker=worker, **options)

    def aconsume(self, *, worker: str, **options: Any) -> consuming.AsyncQueueLoop:
        """Return the loop of :meth:`consume` for ``async for`` and ``await run``."""
        return consuming.AsyncQueueLoop(self, worker=worker, **options)

    @staticmethod
    def resolve_many(results: Mapping[TaskClaim, Any]) -> list[TaskClaim]:
        """Complete the tasks of many claims, of any queues, each with its result, in few statements.

        Return the claims that were lost, for which nothing was written. In each database, all others are written or
        none.
        """
        return held_claims.resolve_many(results)

    @staticmethod
    async def aresolve_many(results: Mapping[TaskClaim, Any]) -> list[TaskClaim]:
        """Run :meth:`resolve_many` from async code."""
        return await sync_to_async(held_claims.resolve_many)(results)

    @staticmethod
    def fail_many(errors: Mapping[TaskClaim, BaseException | str]) -> list[TaskClaim]:
        """End many claims, of any queues, without success, each with its error; return the claims that were lost."""
        return held_claims.fail_many(errors)

    @staticmethod
    async def afail_many(errors: Mapping[TaskClaim, BaseException | str]) -> list[TaskClaim]:
        """Run :meth:`fail_many` from async code."""
        return await sync_to_async(held_claims.fail_many)(errors)

    # Pauses

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
        if seconds is not None and not 0 < seconds <= LONGEST:
            raise TaskError(f"seconds={seconds!r} must be a number above 0 and below a hundred years, or None")
        if found := moment_problem(until):
            raise TaskError(f"until={until} {found}")
        self._write(
            publish_paused=publish,
            claim_paused=claim,
            pause_reason=" ".join(reason.split())[:200],
            pause_author=author[:150],
            pause_until=Later(seconds) if seconds is not None else until and stored(until, self._state.db or home()),
        )
        told = {"queue": self.name, "publish": publish, "claim": claim, "author": author}
        logger.info("tasks.paused" if publish or claim else "tasks.resumed", extra=told)

    def resume(self, *, author: str = "") -> None:
        """End both pauses."""
        self.pause(author=author)

    async def apause(self, **options: Any) -> None:
        """Run :meth:`pause` from async code."""
        await sync_to_async(self.pause)(**options)

    async def aresume(self, *, author: str = "") -> None:
        """Run :meth:`resume` from async code."""
        await sync_to_async(self.resume)(author=author)

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
        """What is paused now, by whom, until when and why, as text; empty if nothing is."""
        what = self.what_is_paused
        return f"{what} {self.pause_description}" if what else ""

    @property
    def pause_description(self) -> str:
        """Who paused the queue, until when and why, as text."""
        by = f"paused by {self.pause_author}" if self.pause_author else "paused"
        until = f" until {self.pause_until:%Y-%m-%d %H:%M:%S %Z}" if self.pause_until else ""
        return f"{by}{until}{f' ({self.pause_reason})' if self.pause_reason else ''}"

    @property
    def _pause_over(self) -> bool:
        now = self.__dict__.get("read_at") or stored(timezone.now(), self._state.db or home())
        return self.pause_until is not None and self.pause_until <= now

    # For publishing, claiming and explaining

    @property
    def exclusive(self) -> bool:
        """Whether at most one task per value of the exclusive key runs at a time."""
        return self.kind == self.Kind.EXCLUSIVE

    def current(self, asking: str = "") -> "Queue":
        """Return the queue as it is configured now, and the database's time as ``read_at``.

        ``asking``: a worker that asks for work. If that was recorded lately, :meth:`note_worker` does nothing for it.
        """
        rows = self._row.annotate(read_at=Now())
        if asking:
            rows = rows.annotate(noted=Exists(self._noted(asking)))
        found = rows.first()
        if found is None:
            raise TaskError(f"queue {self.name} was deleted")
        self.__dict__["known"] = found
        found.__dict__["noted_worker"] = asking if found.__dict__.get("noted") else ""
        return found

    def copies(self) -> list["Queue"]:
        """Return the queue in each of its databases, or itself if it has one; ``copy.tasks`` are the tasks there."""
        return shards.copies(self) or [self]

    def lock(self) -> None:
        """Lock the row until the transaction ends, so that claims which lock it too wait."""
        _lock(self._row)

    def lock_worker(self, worker: str) -> None:
        """Lock the row of a worker that :meth:`note_worker` has noted, until the transaction ends."""
        seen: QuerySet[Claimant] = QuerySet(Claimant, using=self._state.db)
        _lock(seen.filter(queue=self.pk, worker=worker))

    def note_worker(self, worker: str) -> None:
        """Record that a worker asks for work, unless that was recorded within the last 10 s."""
        if self.__dict__.pop("noted_worker", "") == worker or self._noted(worker).exists():
            return
        seen: QuerySet[Claimant] = QuerySet(Claimant, using=self._state.db)
        if not seen.filter(queue=self.pk, worker=worker).update(seen=Now()):
            seen.bulk_create([Claimant(queue_id=self.pk, worker=worker)], ignore_conflicts=True)

    def _noted(self, worker: str) -> QuerySet[Claimant]:
        seen: QuerySet[Claimant] = QuerySet(Claimant, using=self._state.db)
        return seen.filter(queue=self.pk, worker=worker, seen__gt=Later(-SEEN_EVERY))

    def live_workers(self) -> list[str]:
        """Return the names of workers that asked for work within the last minute, sorted."""
        seen = Claimant.objects.using(self._state.db).filter(queue=self.pk, seen__gt=Later(-CLAIMANT_ALIVE))
        return list(seen.order_by("worker").values_list("worker", flat=True)[:MOST_CLAIMANTS])

    @property
    def _row(self) -> QuerySet["Queue"]:
        return QuerySet(type(self), using=self._state.db).filter(pk=self.pk)

    def _write(self, **values: Any) -> None:
        if not self.databases:
            self._row.update(**values)
            self.refresh_from_db(self._state.db, list(values))
            return
        # The row in the home database is authoritative, whichever copy this is.
        rows: QuerySet[Queue] = QuerySet(type(self), using=home()).filter(name=self.name)
        rows.update(**values)
        for name, value in rows.values(*values).get().items():
            setattr(self, name, value)
        self._mirror([])


def _lock(row: QuerySet[Any]) -> None:
    no_key = connections[row.db].features.has_select_for_no_key_update
    list(row.select_for_update(no_key=no_key).values_list("pk"))
