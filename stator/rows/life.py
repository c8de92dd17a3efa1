"""The identity of what is remembered beside a row: a life of its key, a visit of its state, and a wish.

A *life* is from the INSERT to the DELETE of a row, a *visit* from a move into a state to the next move, and a *wish* is
the values of the fields of ``reconcile_on``: each change begins a new one. Two columns have it, and no other module
spells them. Both are null in nearly all rows.

``state_life``: the wish in its lower 32 bits, counted from 0. Above it the life: a random number if the INSERT names
the key, which a deleted row may have had, and 0 for the keys that the database gives. Null is 0.

``state_visit``: null, unless a visit goes on after moves. It is of no meaning unless its first part is the row's
version. So a move ends a visit without writing this column, also the move of a worker of an earlier release.
"""

import secrets
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import BigIntegerField, Case, ExpressionWrapper, F, Model, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, GreaterThan, LessThan

from stator.graph.states import State
from stator.rows.state_column import StateField

# Values of columns or expressions for them.
Changes = dict[str, object]

LIFE, VISIT = "state_life", "state_visit"

OWN_VISIT, OWN_VERSION = F(VISIT), F("state_version")

# The values of a new row whose key the database gives.
UNMARKED: Changes = {LIFE: None, VISIT: None}

# The wishes of one life, and the numbers of lives.
WISHES, LIVES = 1 << 32, (1 << 31) - 1

# Seconds after which nothing brings the visit back that an object has left.
RESTS_AFTER = 3600.0

# The parts of ``state_visit`` from the lowest bits on: the moves since the visit began; the moves since the visit began
# whose failure led here; a mark of the state that failed, 0 for none; and the version of the row.
MOVES, MOST = 12, (1 << 12) - 4
MARKS, VERSIONS = 1 << 10, 1 << 29
MARK_AT, VERSION_AT = 2 * MOVES, 2 * MOVES + 10


@dataclass(frozen=True, slots=True)
class Life:
    """The life and wish of a row as one ``number``, and the ``visit``: the version of the row when it began.

    ``failed``: the visit whose failure has led here, which a move back continues, of a state with this ``mark``; None
    if there is none. ``version``: the number of moves so far.
    """

    number: int = 0
    visit: int = 0
    failed: int | None = None
    mark: int = 0
    version: int = 0

    @classmethod
    def of(cls, version: int, life: int | None, visit: int | None) -> "Life":
        """Return the life of a row with these values of its columns; ``version`` is the number of its moves."""
        if visit is None or visit >> VERSION_AT != version % VERSIONS:
            return cls(life or 0, version, version=version)
        mark = (visit >> MARK_AT) % MARKS
        failed = version - (visit >> MOVES) % (1 << MOVES) if mark else None
        return cls(life or 0, version - visit % (1 << MOVES), failed, mark, version)

    def visit_after(self, source: str, target: State) -> int:
        """Return the number of the visit that a move begins, or continues."""
        if self.failed is not None and self.mark == _mark(target) and target.failure_state == source:
            return self.failed
        return self.version + 1

    @property
    def unmarked(self) -> int:
        """The number of this life and wish in steps by workers of version 1.1, whose time of entry is of this visit."""
        return self.number if self.number % WISHES else 0

    def keeps(self, number: int, visit: int | None) -> bool:
        """Return whether a record of this life and wish, and of this visit, is in force, or is if its visit goes on."""
        return number == self.number and visit is not None and visit in (self.visit, self.failed)

    @property
    def first(self) -> int:
        """The number of this life in its first wish."""
        return self.number - self.number % WISHES

    @property
    def of_life(self) -> Q:
        """A filter for records of this life, whatever the wish."""
        return Q(life__gte=self.first, life__lt=self.first + WISHES)

    def is_of(self, number: int) -> bool:
        """Return whether a record with this ``number`` is of this life, whatever the wish."""
        return number // WISHES == self.number // WISHES

    @property
    def of_wish(self) -> Q:
        """A filter for records of this life and wish."""
        return Q(life=self.number)

    def key(self, label: str, pk: object, state: str) -> str:
        """Return a key for external services: equal as long as the life, the visit and the wish last."""
        return f"{label}:{pk}:{self.visit}{f'.{self.number:x}' if self.number else ''}:{state}"


# The columns from which :meth:`Life.of` makes a life.
OF_LIFE = ("state_version", LIFE, VISIT)


def life_of(instance: Model) -> Life:
    """Return the life of an object as it was read."""
    return Life.of(*(getattr(instance, name) for name in OF_LIFE))


def new_life() -> int:
    """Return the number of a life whose INSERT names the key, which a deleted row may have had."""
    return (1 + secrets.randbelow(LIVES)) * WISHES


def new_wish() -> Changes:
    """Return the changes of a row when a watched field changes."""
    return {LIFE: Coalesce(F(LIFE), 0) + 1}


def visit_of_move(field: StateField, target: State, sources: Collection[str], *, start_over: bool = False) -> Changes:
    """Return the changes of rows that move from these states, with regard to their visits; mostly none.

    A move from the state that ``fails_to`` led to, back into the state that failed, continues that visit, unless it is
    to ``start_over``. Write these columns before the version: MySQL assigns from left to right.
    """
    cases = []
    for state in target.graph.states.values():
        if state.failure_state == target and state != target and state.name in sources:
            own = Case(When(Q(_is_valid(OWN_VISIT, OWN_VERSION)), then=_part(OWN_VISIT)), default=Value(0))
            left = _first_part(OWN_VERSION + 1) + (own + 1) * (1 << MOVES) + (_mark(state) << MARK_AT)
            cases.append(When(Q(LessThan(own, MOST)), then=left, **field.at(state)))
    back = target.failure_state
    if back is not None and back != target and back.name in sources and not start_over:
        mark = OWN_VISIT.bitrightshift(MARK_AT).bitand(MARKS - 1)
        is_back = Q(_is_valid(OWN_VISIT, OWN_VERSION)) & Q(Exact(_number(mark), _mark(target)))
        back_again = _first_part(OWN_VERSION + 1) + _part(OWN_VISIT.bitrightshift(MOVES)) + 1
        cases.append(When(is_back, then=back_again, **field.at(back)))
    return {VISIT: Case(*cases, default=Value(None), output_field=BigIntegerField())} if cases else {}


def continued(moves: int, visit: Combinable = OWN_VISIT, version: Combinable = OWN_VERSION) -> Changes:
    """Return the changes of rows whose visit goes on after so many moves from a ``version`` with a ``visit``."""
    both = Case(
        When(Q(GreaterThan(_number(visit.bitrightshift(MARK_AT).bitand(MARKS - 1)), 0)), then=Value(1 + (1 << MOVES))),
        default=Value(1),
    )
    parts = visit, visit.bitrightshift(MOVES)
    goes_on = Q(_is_valid(visit, version), *(Q(LessThan(_part(part), MOST)) for part in parts))
    kept = _number(visit.bitand((1 << VERSION_AT) - 1)) + both * moves
    own = Case(When(goes_on, then=kept), default=Value(moves), output_field=BigIntegerField())
    return {VISIT: _first_part(version + moves) + own}


def is_of_failure(source: State, target: State) -> bool:
    """Return whether a move may end a visit that can be continued, or continue it: then its steps are kept."""
    return source is not target and (source.failure_state is target or target.failure_state is source)


def _mark(state: State) -> int:
    """Return a number that stands for a state that failed; few states of a graph lead to one by ``fails_to``."""
    return 1 + zlib.crc32(state.name.encode()) % (MARKS - 1)


def _is_valid(visit: Combinable, version: Combinable) -> Exact:
    return Exact(_number(visit.bitrightshift(VERSION_AT)), _number(version.bitand(VERSIONS - 1)))


def _first_part(version: Combinable) -> Combinable:
    return _number(version.bitand(VERSIONS - 1)) * (1 << VERSION_AT)


def _part(value: Combinable) -> Combinable:
    return _number(value.bitand((1 << MOVES) - 1))


def _number(value: Combinable) -> ExpressionWrapper:
    return ExpressionWrapper(value, output_field=BigIntegerField())
