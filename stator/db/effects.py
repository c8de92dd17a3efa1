"""Effects: what the record of outcomes, or a move without a handler, writes beside the columns of the rows.

Each is in the module of its feature, and ``effect_table`` lists them. They are bound to the rows of one model once. For
each batch an effect is asked only what it ``wants``; the answers are the key of the compiled statement.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

from django.db.models import Model

from stator.db.values import Pk
from stator.graph.outcomes import Outcome
from stator.rows.stay import Stay
from stator.statements import Statement

if TYPE_CHECKING:
    from stator.db.interface import Claim, Ended, Operations, OutcomeBatch

# An answer of :meth:`Effect.wants`: a statement of its own writes the effect, after that of the rows.
AFTER: Final = "<after>"
# Another one: nothing is written with the rows. The effect takes note of them once they are written.
LATER: Final = "<later>"


@dataclass(frozen=True, slots=True)
class RowsMove:
    """A move without a handler, of rows that nobody has claimed; ``reason``: why they move.

    What else an act may have, it lacks.
    """

    edge: tuple[str, str]
    reason: str

    ended: "ClassVar[Sequence[Ended]]" = ()
    claims: "ClassVar[Sequence[Claim]]" = ()
    outcomes: ClassVar[Sequence[Outcome]] = ()
    saves: ClassVar[tuple[str, ...]] = ()
    moved = True
    quiet = released = begun = failed = computed = may_go_on = False
    note: ClassVar[Any] = None
    at_once = None


# What happens to rows: outcomes of one kind, or a move, which has no claims and no outcomes. Effects take both.
Act: TypeAlias = "OutcomeBatch | RowsMove"


@dataclass(frozen=True, slots=True)
class Done:
    """Rows that are written, in a transaction that is still open.

    ``act``: with the accepted outcomes alone.
    ``accepted``: the keys of the rows, each with the seconds that the row had been in the state that it left, if one of
    the effects ``tells`` them. ``together``: the same of many rows.
    ``wait``: whether to wait for rows that other transactions hold.
    """

    act: Act
    accepted: Mapping[Pk, float | None]
    together: Sequence[Stay] = ()
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The share of an effect in the statement that records outcomes; the texts continue lists and conditions.

    ``changes``: columns of the row. These are all that the portable statement takes.
    ``arrays`` and ``names``: further values of each row, as arrays, and what they are called in ``v``.
    ``passed``: expressions over a row ``t`` as it was found.
    ``locked``: conditions of the row as it was locked.
    ``before``: statements in the WITH that read the found rows, ``mine``, or lock others before the rows are written.
    ``set``: further columns of the row. ``only``: conditions without which a row is not written.
    ``returned``: expressions over the row as it is written. ``after``: statements in the WITH that read ``done``.
    ``result``: further columns that are returned of ``done``.
    """

    changes: Mapping[str, object] | None = None
    arrays: str = ""
    names: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    locked: str = ""
    before: Statement | str = ""
    set: str = ""
    only: Statement | str = ""
    returned: tuple[str, ...] = ()
    after: Statement | str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """What effects are bound to: the operations on rows, and the compiler if one statement may write the effects.

    ``inserts``: whether that statement may insert rows into other tables. ``updates``: if not, whether it may update
    them; then it writes nothing while such a row is missing.
    """

    operations: "Operations"
    compiler: Any = None
    inserts: bool = False
    updates: bool = False

    @property
    def model(self) -> type[Model]:
        """The model of the rows."""
        return self.operations.model


class Effect:
    """What one feature writes beside rows. A subclass defines what it has of these methods.

    ``tells``: :meth:`write` needs the seconds that each row had been in the state that it left.
    ``picky``: its answer depends on the rows, and the part leaves out those that need more than one statement.
    ``follows``: it is written after what an app keeps, as it may lock and write other rows.
    """

    tells = False
    picky = False
    follows: ClassVar[bool] = False

    def __init__(self, store: Store) -> None:
        self._operations = store.operations
        self._compiler = store.compiler
        self._inserts = store.inserts

    @property
    def model(self) -> type[Model]:
        """The model of the rows."""
        return self._operations.model

    @property
    def alias(self) -> str:
        """The alias of their database."""
        return str(self._operations.alias)

    @property
    def table(self) -> str:
        """The quoted name of their table if one statement may write them and other tables, else "", see ``AFTER``."""
        return str(self._compiler.table) if self._inserts else ""

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return the effect for the rows of a model; None if it never writes anything for them."""
        return cls(store)

    def wants(self, act: Act) -> Hashable:
        """Return None if there is nothing to write, ``AFTER``, or a key of the part that the statement takes.

        It is asked once about all ``quiet`` acts along an edge, unless an effect of the model is ``picky``.
        """
        raise NotImplementedError

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the share of the one statement; its text depends on the ``answer`` alone."""
        raise NotImplementedError

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the values for the placeholders of the part."""

    def begin(self, act: Act) -> None:
        """Insert the rows that the one statement updates, after it wrote nothing."""

    def leaving(self, act: Act, pks: Collection[Pk]) -> None:
        """Write the effect of a move without a handler, of locked rows that are still as they were."""

    def write(self, done: Done) -> None:
        """Write the effect by statements of its own, in the transaction that has written the rows."""
        raise NotImplementedError

    def note(self, done: Done) -> None:
        """Take note of rows that are written and, outside of a transaction of others, committed; see ``LATER``."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """How effects are written: ``together`` with the rows, each by its answer, or by ``further`` statements.

    ``later``: those that take note of the rows and write nothing with them.

    ``tells``: some of these need the seconds that each row had been in the state that it left.
    ``complete``: the plan for a statement that leaves out no row; None if this one does not either.
    """

    answers: tuple[Hashable, ...]
    together: tuple[tuple[Effect, Hashable], ...]
    further: tuple[Effect, ...]
    tells: bool
    complete: "RecordPlan | None" = None
    later: tuple[Effect, ...] = ()

    @classmethod
    def of(cls, effects: Sequence[Effect], answers: tuple[Hashable, ...]) -> "RecordPlan":
        """Return the plan for these answers of the effects."""
        asked = [(effect, answer) for effect, answer in zip(effects, answers, strict=True) if answer is not None]
        together = tuple((effect, answer) for effect, answer in asked if answer not in (AFTER, LATER))
        noting = tuple(effect for effect, answer in asked if answer == LATER)
        further = tuple(effect for effect, answer in asked if answer == AFTER)
        picky = {effect for effect, _ in together if effect.picky}
        later = tuple(AFTER if effect in picky else answer for effect, answer in zip(effects, answers, strict=True))
        complete = cls.of(effects, later) if picky else None
        tells = any(effect.tells for effect in (*further, *noting))
        return cls(answers, together, further, tells, complete, noting)

    def parts(self, act: Act) -> list[Part]:
        """Return the shares of the one statement."""
        return [effect.part(act, answer) for effect, answer in self.together]
