"""Followers: what follows when rows move, whoever moves them: workers, duties, people, events or an undo."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from django.db import transaction
from django.db.models import Model, QuerySet

from stator.graph.failures import Failure
from stator.graph.states import State
from stator.rows.actions import Action
from stator.rows.kinds import Kinds, defines
from stator.rows.left import of_graph
from stator.rows.life import Life
from stator.rows.locking import parts_of
from stator.rows.meta import owner_of, written_to


class WaiterHeld(Exception):
    """Other transactions hold objects that the moves of these objects, by their keys, may have to move."""

    def __init__(self, pks: Collection[object]) -> None:
        super().__init__(pks)
        self.pks = pks


class Left(Protocol):
    """A row as it was before a move, or the claim on it."""

    @property
    def pk(self) -> Hashable: ...
    @property
    def state(self) -> State | str: ...
    @property
    def life(self) -> Life: ...


# The kinds of acts: most are of people or programs. A move follows those of related objects.
HAND, MOVE = "hand", "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandAct:
    """What a person, a program or related rows do to rows: a move to ``target``, or a change without one.

    ``actor``: who, and ``reason``: why; both may be empty. ``kind``: "hand", "move", or that of an extension.
    ``action``: the stored action that the act is a part of. ``recorded``: the history is to have it even
    if it names nobody.
    """

    target: State | None = None
    actor: str = ""
    reason: str = ""
    kind: str = HAND
    action: Action | None = None
    recorded: bool = False


class Follower:
    """What one feature does when rows of a model move, in the transaction that moves them.

    It is made once for each model. ``entries`` and ``exits``: the names of the states whose rows it follows when they
    enter or leave them. Moves ask these sets and nothing else, so a model without them pays nothing.
    ``fields``: the fields and columns of the model whose writes, without a move, it follows.
    ``recorded``: where nothing else follows a move, an effect of the extension does it with records of outcomes.
    """

    entries: frozenset[str] = frozenset()
    exits: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    recorded: ClassVar[bool] = False

    def __init__(self, model: type[Model]) -> None:
        self.model = model

    @classmethod
    def bind(cls, model: type[Model]) -> Self | None:
        """Return the follower of a model's rows; None if nothing ever follows their moves."""
        return cls(model)

    def by_hand(self, rows: QuerySet[Model], pks: list[object], act: HandAct) -> None:
        """Do what precedes an act by hand on locked rows with these keys."""

    def left(self, using: str, before: Sequence[Left]) -> None:
        """Do what follows when rows have left one of the ``exits``."""

    def entered(self, using: str, state: str, pks: list[object], *, wait: bool) -> None:
        """Do what follows when rows have entered one of the ``entries``; at most as many as one statement can name.

        If another transaction holds a row that has to be moved, raise :class:`WaiterHeld` unless it may ``wait``.
        """

    def written(self, rows: QuerySet[Model]) -> None:
        """Do what a write to one of the ``fields`` of these rows causes, in its transaction, before or after it."""

    def reaping(self, rows: QuerySet[Model]) -> None:
        """Do what precedes the end of the leases of these locked rows, which have run out."""

    def quarantined(self, rows: QuerySet[Model], held: Mapping[object, str], most: int) -> None:
        """Do what follows when ``most`` lost leases have quarantined these rows.

        ``held``: the workers that held them, by their keys, and those of others.
        """

    def hung(self, using: str, pk: object, state: str, failure: Failure, worker: str) -> None:
        """Do what follows when a worker ends itself because the attempt of this row, which it holds, hangs."""

    def waking(self, states: set[str]) -> Iterable[type[Model]]:
        """Return the models that may have ready rows because rows have entered these states."""
        return ()

    def taken(self, rows: QuerySet[Model], why: str) -> Collection[object]:
        """Do what precedes taking the claims on these locked rows from their holders.

        ``why``: why a condition takes them from a worker; if it is empty, their leases have run out. Return the keys of
        the rows whose attempts are known not to have begun: if their leases have run out, no attempt and no crash
        counts.
        """
        return ()

    def staying(self, rows: QuerySet[Model]) -> Mapping[object, str]:
        """Return the keys of the rows that an undo must leave as they are, each with why, as words after its name.

        It is called in the transaction that is to move these rows back.
        """
        return {}

    def went_back(self, rows: QuerySet[Model]) -> None:
        """Do what follows when an undo has moved these rows back."""


# Without the followers, rows would wait for moves that have happened.
FOLLOWERS = Kinds[type[Follower]]("moved")


@of_graph
def followers_of(model: type[Model]) -> tuple[Follower, ...]:
    """Return what follows moves of a model's rows, without followers that never do anything for them."""
    bound = [each for kind in FOLLOWERS.known(model._meta.label) if (each := kind.bind(model)) is not None]
    return tuple(each for each in bound if each.entries or each.exits or each.fields or defines(each, *_OF_ROWS))


# What is followed whatever the states are.
_OF_ROWS = (
    Follower.by_hand, Follower.reaping, Follower.quarantined, Follower.hung, Follower.waking, Follower.taken,
    Follower.staying, Follower.went_back,
)  # fmt: skip


def waking(followers: Iterable[Follower]) -> tuple[Follower, ...]:
    """Return the followers that may say that rows of other models are ready."""
    return tuple(each for each in followers if defines(each, Follower.waking))


def taken(followers: Iterable[Follower], rows: QuerySet[Model], why: str = "") -> set[object]:
    """Do what precedes taking claims from their holders; return the rows whose attempts have not begun."""
    return {pk for follower in followers for pk in follower.taken(rows, why)}


def of_writes(model: type[Model], names: Iterable[str]) -> list[Follower]:
    """Return what follows writes to the named fields of a model's rows."""
    return [each for each in followers_of(model) if not each.fields.isdisjoint(names)]


def update_and_follow(queryset: QuerySet[Model], names: Iterable[str], update: Callable[[], int]) -> int:
    """Call ``update()``, and do what follows writes to the named fields."""
    owner = owner_of(queryset.model)
    followers = of_writes(owner, names)
    if not followers:
        return update()
    using = written_to(queryset)
    meant = queryset.using(using).order_by().values("pk")
    with transaction.atomic(using=using):
        for follower in followers:
            follower.written(QuerySet(owner, using=using).filter(pk__in=meant))
        return update()


def by_hand(rows: QuerySet[Model], pks: list[object], act: HandAct) -> None:
    """Do what precedes an act by hand on locked rows; call it in the transaction that then changes them."""
    if act.action is not None:
        act.action.add(str(rows.db), len(pks))
    for follower in followers_of(rows.model):
        follower.by_hand(rows, pks, act)


def moved(
    owner: type[Model],
    using: str,
    state: str,
    pks: Collection[object],
    before: Sequence[Left] = (),
    *,
    wait: bool = True,
) -> None:
    """Do what follows when rows have entered a state; call it last in the transaction that moves them.

    ``before``: the rows as they were, if one of them may have left a state of the ``exits``.
    """
    followers = followers_of(owner)
    for follower in followers:
        if follower.exits and (left := [each for each in before if str(each.state) in follower.exits]):
            follower.left(using, left)
    for follower in followers:
        if state in follower.entries:
            for some in parts_of(owner, pks):
                follower.entered(using, state, some, wait=wait)
