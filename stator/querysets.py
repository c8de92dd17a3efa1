"""``Model.stator``: queries and actions of operators on the rows of a managed model."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NoReturn, overload
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models import Count, Manager, Model, Q

from stator.asynchronous import awaited, in_thread
from stator.conf import load_settings
from stator.extensions.events.verbs import HasEvents, TakesEvents
from stator.extensions.guard.columns import GuardedQuerySet
from stator.extensions.pauses.verbs import Pausing
from stator.extensions.problems.verbs import Explaining
from stator.extensions.progress.claims import SaysProgress
from stator.extensions.reconcile.querysets import ReconcilingQuerySet
from stator.extensions.reports.verbs import Reporting
from stator.extensions.steps.claims import DoesSteps
from stator.graph.states import State
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.claimable import READY
from stator.rows.dates import due_since
from stator.rows.due_times import Due, is_due, make_due
from stator.rows.life import Life
from stator.rows.managers import MovingQuerySet
from stator.rows.meta import M, graph_of, home_of
from stator.rows.state_column import UNMANAGED, state_field, state_of
from stator.rows.transitions import move_by_hand, write_by_hand

# The claim and the name of the part of an attempt that runs in this context and has a key of its own.
running_part: ContextVar[tuple["HeldClaim", str] | None] = ContextVar("stator_part", default=None)

# The time of ``due()`` that was not given; None means now.
UNGIVEN: Any = object()

# Seconds after which a due row should have been attempted.
OVERDUE = 60.0


class ManagedQuerySet(  # type: ignore[override]
    GuardedQuerySet[M],  # stator.extensions.guard
    ReconcilingQuerySet[M],  # stator.extensions.reconcile
    MovingQuerySet[M],
):
    """What every queryset of a managed model is, whatever manager it comes from."""


class OperatorQuerySet(  # type: ignore[override]
    Explaining,  # stator.extensions.problems
    Pausing,  # stator.extensions.pauses
    Reporting,  # stator.extensions.reports
    ManagedQuerySet[M],
):
    """Rows of a managed model for operators: ``Model.stator``. It never uses the project's own managers."""

    def in_state(self, *states: State | str | int) -> "OperatorQuerySet[M]":
        """Return the rows in any of the given states; ``"unmanaged"`` means the rows without one."""
        field = state_field(self.model)
        rows = self.filter(**field.among(states))
        return rows | field.unmanaged(self) if UNMANAGED in states else rows

    def ready(self) -> "OperatorQuerySet[M]":
        """Return the rows that workers may claim now."""
        return self.filter(is_due(self.model), READY, **self._automatic)

    @overload
    def due(self) -> "OperatorQuerySet[M]": ...

    @overload
    def due(self, at: Due, *, actor: str = "", reason: str = "", action: Action | None = None) -> int: ...

    def due(
        self, at: Due = UNGIVEN, *, actor: str = "", reason: str = "", action: Action | None = None
    ) -> "OperatorQuerySet[M] | int":
        """Return the rows whose due time has passed, marked ready or not; or, with ``at``, let all be due then.

        ``at``: a datetime, a timedelta or seconds from now, or None for now. Returns how many rows are due then. Others
        stay as they are: claimed and quarantined rows, rows that wait for another object or for a later date of
        ``try_at``, and rows in states that workers do not attempt. Errors stay counted.
        """
        if at is not UNGIVEN:
            return make_due(self, at, action or Action.of(self.model, "due", actor, reason))
        return self.filter(is_due(self.model), state_claim=None, **self._automatic).exclude(self._quarantine)

    def leased(self) -> "OperatorQuerySet[M]":
        """Return the rows that a worker holds."""
        return self.filter(state_claim__isnull=False)

    def failed(self) -> "OperatorQuerySet[M]":
        """Return the rows whose latest attempt ended in an error, and quarantined ones."""
        return self.filter(Q(state_failures__gt=0) | self._quarantine)

    def quarantined(self) -> "OperatorQuerySet[M]":
        """Return the rows that lost ``MAX_CRASHES`` leases in a row; workers do not attempt them until ``retry()``."""
        return self.filter(self._quarantine)

    def stuck(self) -> "OperatorQuerySet[M]":
        """Return the rows that have been in their state for longer than its ``expect_within``."""
        late = Q(pk__in=[])
        for state in graph_of(self.model).states.values():
            if state.expect_within:
                there = state_field(self.model).at(state)
                late |= Q(**there, state_changed__lte=columns.after(-state.expect_within))
        return self.filter(late)

    @awaited
    async def adue(self, at: Due, *, actor: str = "", reason: str = "", action: Action | None = None) -> int:
        """Run :meth:`due` with a time in a thread, for async code."""
        return await sync_to_async(make_due)(self, at, action or Action.of(self.model, "due", actor, reason))

    def overdue(self, seconds: float = OVERDUE) -> "OperatorQuerySet[M]":
        """Return the rows that have been due for longer than ``seconds`` and are not claimed: too few workers run."""
        rows = self.due().annotate(stator_since=due_since(self.model))
        return rows.filter(stator_since__lte=columns.after(-seconds))  # type: ignore[return-value]

    def unknown(self) -> "OperatorQuerySet[M]":
        """Return the rows whose state this code does not know; its workers do not attempt them."""
        field = state_field(self.model)
        return field.managed(self.exclude(**field.among(graph_of(self.model).states)))

    def retry(self, *, actor: str = "", action: Action | None = None) -> int:
        """Make the rows due now, end their quarantine and forget their errors; return how many.

        Claimed rows are left alone; rows whose date of ``try_at`` is ahead still wait for it. ``action``: a manual
        action of which this is a part; else it is one of its own. The same holds for the other actions here.
        """
        rows = self.filter(state_claim=None, **self._automatic)
        action = action or Action.of(self.model, "retry", actor)
        changes = columns.retrying(load_settings().released_with)
        return write_by_hand(rows, changes, actor=action.actor, reason="retried", action=action)

    def unlock(self, *, actor: str = "", action: Action | None = None) -> int:
        """End the claims on the rows, so that their holders can write nothing more; return how many."""
        action = action or Action.of(self.model, "unlock", actor)
        changes = columns.unlocking()
        return write_by_hand(self.leased(), changes, actor=action.actor, reason="unlocked", action=action)

    def move(
        self,
        state: State | str,
        *,
        actor: str = "",
        reason: str = "",
        action: Action | None = None,
        start_over: bool = False,
    ) -> int:
        """Move the rows to ``state`` by hand, recording actor and reason; return how many.

        ``start_over``: rows that return to the state that failed begin a new visit, without their recorded steps.
        """
        action = action or Action.of(self.model, "move", actor, reason, moves=True)
        return move_by_hand(self, state, actor=action.actor, reason=action.reason, action=action, start_over=start_over)

    def counts(self) -> dict[str, int]:
        """Return the number of rows in each state, including states of the graph that have none.

        Rows of a nullable field without a state are counted as ``"unmanaged"``.
        """
        field = state_field(self.model)
        counted = self.order_by().values_list(field.name).annotate(Count("pk"))
        filled = {field.name_of(value): count for value, count in counted}
        names = [*graph_of(self.model).states, *([UNMANAGED] if field.null else [])]
        return {**dict.fromkeys(names, 0), **filled}

    @property
    def _automatic(self) -> dict[str, list[object]]:
        return state_field(self.model).among(graph_of(self.model).automatic_states)

    @property
    def _quarantine(self) -> Q:
        # "Above 0" looks redundant, but SQLite uses a partial index only if the filter repeats the index's condition.
        return Q(state_crashes__gt=0, state_crashes__gte=load_settings().MAX_CRASHES)


def rows_by_label(models: Iterable[type[M]], using: str) -> dict[str, OperatorQuerySet[M]]:
    """Return all rows of each model in a database, by the model's label in lower case."""
    return {model._meta.label_lower: OperatorQuerySet(model, using=using) for model in models}


class Addressee(
    TakesEvents,  # stator.extensions.events
):
    """``instance.stator``: what can be done with one object, whether or not it is claimed."""

    __slots__ = ()

    # Of the project's own class.
    instance: Any

    def due(self, at: Due, *, actor: str = "", reason: str = "") -> bool:
        """Let the object be due at ``at``: a datetime, a timedelta or seconds from now, or None for now.

        Return False, with nothing changed, if a due time does not decide when it is attempted next: it is being
        attempted, waits for another object or for a later date of ``try_at``, is in quarantine or in a state that
        workers do not attempt; ``explain()`` says which. A handler raises ``TryAgainLater`` instead. The instance
        shows its new due time. With an ``actor``, it is an action of an operator: stored in the history, and undone by
        ``stator undo``.
        """
        instance = self.instance
        using = home_of(instance)
        rows: OperatorQuerySet[Model] = OperatorQuerySet(type(instance), using=using).filter(pk=instance.pk)
        action = Action.of(type(instance), "due", actor, reason) if actor else None
        if not make_due(rows, at, action):
            return False
        instance.refresh_from_db(using, fields=["state_ready", "state_next_attempt"])
        return True

    adue = in_thread(due)


class Unclaimed(Addressee):
    """``instance.stator`` outside of attempts; it is false, and has nothing that belongs to a claim."""

    __slots__ = ("instance",)

    def __init__(self, instance: Model) -> None:
        self.instance = instance

    def __bool__(self) -> bool:
        return False

    @property
    def state(self) -> State | None:
        """The state of the object, whatever its field is called; None if it has none that this code knows."""
        return state_of(self.instance)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self.instance._meta.label} {self.instance.pk} is not claimed, so instance.stator has no {name!r} here"
        )


class HeldClaim(
    HasEvents,  # stator.extensions.events
    SaysProgress,  # stator.extensions.progress
    DoesSteps,  # stator.extensions.steps
    Addressee,
):
    """``instance.stator`` during an attempt: the claim on the object.

    ``attempt``: the number of this attempt in this state. ``failures``: errors in a row so far. ``version``: how often
    the object has moved. ``age``: seconds since it entered the state.
    """

    __slots__ = ()

    operations: Any
    pk: Any
    state: State
    token: UUID
    attempt: int
    failures: int
    age: float
    # What few claims have, by name.
    kept: dict[str, object]

    @property
    def version(self) -> int:
        """How often the object has moved."""
        raise NotImplementedError

    @property
    def life(self) -> Life:
        """The life, visit and wish of the attempt."""
        raise NotImplementedError

    @property
    def idempotency_key(self) -> str:
        """A key for external services: equal in every attempt of one visit of the state, and never equal in another.

        It also changes if a field of ``reconcile_on`` does, and if the object is deleted and made anew. A move back
        from where ``fails_to`` led into the state that failed continues the visit, and so does an undo: the key is as
        before. Each step has a key of its own, which is this one while the step is called.
        """
        key = self.life.key(self.operations.label, self.pk, self.state.name)
        part = running_part.get()
        return key if part is None or part[0] is not self else f"{key}:{part[1]}"

    def preparing(self) -> AbstractContextManager[None]:
        """Return a context for preparing the work; if the database fails inside, the attempt is not counted."""
        raise NotImplementedError

    def still_mine(self) -> bool:
        """Ask the database whether the claim still holds the row and its lease has not run out."""
        raise NotImplementedError

    astill_mine = in_thread(still_mine)

    def extend(self, seconds: float) -> bool:
        """Let the lease and the attempt end ``seconds`` from now; return False if the claim has ended."""
        raise NotImplementedError

    aextend = in_thread(extend)


# Any, because type checkers do not know a class that is made by a call.
_Manager: Any = Manager.from_queryset(OperatorQuerySet)


class OperatorManager(_Manager):
    """``Model.stator``: a manager, since code that looks through the attributes of a class tests them for truth."""

    model: Any

    def __init__(self, model: type[Model]) -> None:
        super().__init__()
        self.model, self.name = model, "stator"


class OperatorAccess:
    """``Model.stator``: an :class:`OperatorManager`. On an instance: its claim, or :class:`Unclaimed` without one.

    For type checkers it is the queryset whose methods it has, and an instance always has a claim, so that handlers need
    no test for None.
    """

    @overload
    def __get__(self, instance: None, owner: type[M]) -> OperatorQuerySet[M]: ...

    @overload
    def __get__(self, instance: Model, owner: type[M]) -> HeldClaim: ...

    def __get__(self, instance: Model | None, owner: type[M]) -> object:
        return OperatorManager(owner) if instance is None else Unclaimed(instance)
