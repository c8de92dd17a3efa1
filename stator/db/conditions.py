"""Conditions: which rows of a model a worker may claim and go on holding, bound once to each store.

Extensions bring them. A store keeps those that have something to say about its model; if there are none, a claim costs
nothing more.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar

from django.db.models import Model, Q, QuerySet

from stator.db.values import Pk
from stator.exceptions import Errors
from stator.graph import State
from stator.rows.kinds import Kinds, defines

if TYPE_CHECKING:
    from stator.db.interface import Operations

Result = TypeVar("Result")

# What rows may be held back from. Further writes that the database refuses have the name of their move.
# ``TIME_OUT``: the move of a row that workers would attempt by a date of the row.
CLAIM, MARK_READY, REAP, DELETE, TIME_OUT = "claim", "mark_ready", "reap", "delete", "time_out"

# No filter: all rows.
ALL = Q()


class Condition:
    """What one extension or app asks of the rows of a model. A subclass defines what it has of these methods.

    Filters are the same objects while they mean the same: compiled statements are kept for them.

    ``of_processes``: only worker processes obey it; programs that claim have rules of their own. ``is_silent``: it asks
    nothing at the moment, so none of its methods has to be called.
    """

    of_processes: ClassVar[bool] = False
    is_silent = False

    def __init__(self, store: "Operations", earlier: "Sequence[Condition]") -> None:
        self._store = store
        self._earlier = earlier

    @classmethod
    def bind(cls, store: "Operations", earlier: "Sequence[Condition]") -> Self | None:
        """Return the condition for the rows of a store; None if it never says anything about them.

        ``earlier``: the conditions of the same store that precede it in the table of extensions.
        """
        return cls(store, earlier)

    @property
    def held_back(self) -> Q:
        """A filter for the rows that the conditions before it, which programs obey too, hold back from claims.

        It is empty if they hold back none.
        """
        lasting = (each for each in self._earlier if not each.of_processes)
        others = [rows for each in lasting if (rows := each.rows(CLAIM)) is not None]
        return ~reduce(and_, others) if others else ALL

    def states(self, wanted: list[State]) -> list[State]:
        """Return those of these states in which rows may be claimed."""
        return wanted

    def rows(self, deed: str) -> Q | None:
        """Return a filter for the rows that may be claimed, marked ready and so on (``deed``); None for all rows."""
        return None

    def holds(self) -> Q | None:
        """Return a filter for the claimed rows that the worker may go on holding; None for all rows."""
        return None

    def gates(self, states: list[State]) -> bool:
        """Return whether it limits how many rows are claimed together in these states. It sends no statement."""
        return False

    def pieces(self, deed: str, pks: list[Pk], write: Callable[[list[Pk]], Result], errors: Errors) -> list[Result]:
        """Return the results of ``write`` for rows that the database has refused to change together.

        It leaves out rows at fault. ``errors``: what ``write`` may raise.
        """
        return []

    def withheld(self, pks: Collection[Pk]) -> set[Pk]:
        """Return which rows that a claim has locked, in its transaction, it must leave; it may have changed these."""
        return set()

    def to_watch(self) -> list[QuerySet[Model]]:
        """Return querysets of rows that a worker has to look at even if none is ready or due."""
        return []

    def room(self, states: list[State], limit: int, *, sure: bool) -> int:
        """Return how many of ``limit`` rows may be claimed, in states that it gates.

        ``sure``: the call is in the claim's transaction, and the answer holds until that ends.
        """
        return limit


class Stored(Protocol):
    """What the stored rows of a condition say of one model; nothing if it is false. Equal ones say the same."""

    def running(self, states: Iterable[State]) -> list[State]:
        """Return the states that it does not leave out as a whole."""

    def held(self, model: type[Model], states: Iterable[State]) -> Q:
        """Return a filter for the rows of the other states that it holds; an empty one if it holds none."""


class StoredCondition(Condition):
    """A condition that people store as rows of a small table, which is read once for all models of a database.

    Rows that it holds are not claimed, and wait for its end with their deadlines. ``sign``: what :meth:`asked` says of
    the rows that were read; None before any were.
    """

    is_silent = True
    sign: int | None = None

    def __init__(self, store: "Operations", earlier: Sequence[Condition]) -> None:
        super().__init__(store, earlier)
        self._stored = self.said(store.label, ())
        self._rows: Q | None = None

    @classmethod
    def asked(cls, alias: str) -> QuerySet[Model, object]:
        """Return a query of one number, for each poll; it is another number when rows have come or gone."""
        raise NotImplementedError

    @classmethod
    def sign_of(cls, read: Sequence[object]) -> int:
        """Return the number that :meth:`asked` has for these rows in force; 0 for none."""
        raise NotImplementedError

    @classmethod
    def in_force(cls, alias: str, label: str | None = None) -> QuerySet[Model]:
        """Return the rows that are in force, of one model or of all."""
        raise NotImplementedError

    @classmethod
    def said(cls, label: str, read: Sequence[object]) -> Stored:
        """Return what rows in force of all models say of one."""
        raise NotImplementedError

    def take(self, read: Sequence[object]) -> bool:
        """Take over the rows in force of all models; return whether that changes the condition."""
        before, self._stored = self._stored, self.said(self._store.label, read)
        self.sign = self.sign_of(read)
        if before == self._stored:
            return False
        self.is_silent = not self._stored
        held = self._stored.held(self._store.model, self._store.graph.automatic_states)
        self._rows = ~held if held else None
        return True

    def states(self, wanted: list[State]) -> list[State]:
        return self._stored.running(wanted)

    def rows(self, deed: str) -> Q | None:
        return self._rows if deed in (CLAIM, TIME_OUT) else None


# Without the conditions, paused rows would be claimed.
CONDITIONS = Kinds[type[Condition]]("claimed")


def conditions_of(store: "Operations") -> "Conditions":
    """Return the conditions of a store."""
    bound: list[Condition] = []
    for kind in CONDITIONS.known(store.label):
        if (condition := kind.bind(store, tuple(bound))) is not None:
            bound.append(condition)
    return Conditions(bound)


class Conditions:
    """The conditions of one store together."""

    def __init__(self, bound: Iterable[Condition]) -> None:
        self._bound = tuple(bound)
        self.stored = tuple(each for each in self._bound if isinstance(each, StoredCondition))
        self._states = self._saying(Condition.states)
        self._rows = self._saying(Condition.rows)
        self._holds = self._saying(Condition.holds)
        self._gates = self._saying(Condition.gates)
        self._withholding = self._saying(Condition.withheld)
        self._watching = self._saying(Condition.to_watch)
        # What goes on with single rows after a refusal; without it, a refused row holds up those beside it.
        self.dividing = next(iter(self._saying(Condition.pieces)), None)
        # By deed: the latest filters, and what they are together.
        self._kept: dict[str, tuple[list[Q], Q]] = {}

    def _saying(self, method: Callable[..., object]) -> tuple[Condition, ...]:
        """Return the conditions that define a method."""
        return tuple(each for each in self._bound if defines(each, method))

    def states(self, wanted: list[State]) -> list[State]:
        """Return those of these states in which rows may be claimed."""
        for each in self._states:
            if not each.is_silent:
                wanted = each.states(wanted)
        return wanted

    def rows(self, deed: str = CLAIM) -> Q:
        """Return a filter for the rows that may be claimed, marked ready and so on; an empty one for all rows."""
        filters = [rows for each in self._rows if not each.is_silent and (rows := each.rows(deed)) is not None]
        if len(filters) <= 1:
            return filters[0] if filters else ALL
        parts, together = self._kept.get(deed, ([], ALL))
        if len(parts) != len(filters) or any(one is not other for one, other in zip(parts, filters, strict=True)):
            together = reduce(and_, filters)
            self._kept[deed] = filters, together
        return together

    def holds(self) -> Q | None:
        """Return a filter for the claimed rows that the worker may go on holding; None for all rows."""
        filters = [rows for each in self._holds if (rows := each.holds()) is not None]
        return reduce(and_, filters) if filters else None

    def gates(self, states: list[State]) -> bool:
        """Return whether :meth:`room` limits claims in these states."""
        return any(each.gates(states) for each in self._gates)

    def room(self, states: list[State], limit: int, *, sure: bool = False) -> int:
        """Return how many of ``limit`` rows may be claimed in these states; ``sure``: in the claim's transaction."""
        for each in self._gates:
            if limit and each.gates(states):
                limit = each.room(states, limit, sure=sure)
        return limit

    @property
    def withhold(self) -> bool:
        """Whether :meth:`withheld` may say something."""
        return bool(self._withholding)

    def withheld(self, pks: Collection[Pk]) -> set[Pk]:
        """Return which rows that a claim has locked it must leave; call it in the claim's transaction."""
        return set[Pk]().union(*(each.withheld(pks) for each in self._withholding)) if pks else set()

    def to_watch(self) -> list[QuerySet[Model]]:
        """Return querysets of rows that a worker has to look at even if none is ready or due."""
        return [rows for each in self._watching for rows in each.to_watch()]

    def read_initially(self, store: "Operations") -> None:
        """Read the stored conditions that no poll has read yet."""
        for each in self.stored:
            if each.sign is None:
                each.take(_read(type(each), store))

    def for_program(self, store: "Operations") -> "Conditions":
        """Return the conditions that a program obeys that claims rows of a store, as the database has them now."""
        conditions = Conditions(copy(each) for each in self._bound if not each.of_processes)
        for each in conditions.stored:
            each.take(_read(type(each), store))
        return conditions


def all_stored_kinds() -> tuple[type[StoredCondition], ...]:
    """Return the kinds of stored conditions that there are."""
    return tuple(kind for kind in CONDITIONS.all or () if issubclass(kind, StoredCondition))


def stored_kinds(stores: "Iterable[Operations]") -> tuple[type[StoredCondition], ...]:
    """Return the kinds of stored conditions that these stores have, each once."""
    return tuple(dict.fromkeys(type(each) for store in stores for each in store.conditions.stored))


def read_again(stores: "Sequence[Operations]", signs: Mapping[type[StoredCondition], int]) -> bool:
    """Read the stored conditions again that a poll saw change; return whether one of the stores claims other rows now.

    ``signs``: the poll's answers to :meth:`StoredCondition.asked`.
    """
    changed = False
    for kind, sign in signs.items():
        own = [each for store in stores for each in store.conditions.stored if type(each) is kind]
        if any(each.sign != sign for each in own):
            # Zero: there is nothing to read.
            read = _read(kind, stores[0]) if sign else []
            taken = [each.take(read) for each in own]
            changed |= any(taken)
    return changed


def _read(kind: type[StoredCondition], store: "Operations") -> list[Model]:
    with store.reading():
        return list(kind.in_force(store.alias))
