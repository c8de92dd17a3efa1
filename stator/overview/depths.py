"""How many objects of a model are in which state, and for how long: bounded, however many rows the table has."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, reduce
from itertools import pairwise
from operator import or_
from uuid import UUID

from django.db.models import DurationField, ExpressionWrapper, F, Q

from stator.conf import load_settings
from stator.db.bounded_counts import Question, Tally, by_state, in_all, question, tally
from stator.graph import State
from stator.graph.durations import seconds_of
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.indexes import line_of_all

# Rows are counted up to this number, for each state and for ready rows.
COUNTED = 10_000

# Claimed rows that are read.
LEASED = 1000

# Stuck objects that are listed for each state.
NAMED = 5

# Seconds; an object that is due later than that was probably given a wrong due time. Such objects that are named.
FAR, FAR_NAMED = 366 * 86400.0, 20


@dataclass(frozen=True, slots=True)
class Held:
    """An object that a worker holds; ``running`` and ``late`` in seconds, ``late`` above 0 after its lease's end."""

    pk: object
    state: str
    token: UUID
    running: float
    late: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """An object that is in its state for longer than expected; ``age`` in seconds."""

    pk: object
    state: str
    age: float


@dataclass(frozen=True, slots=True)
class Far:
    """An object that is due in the far future; ``due`` in seconds from now."""

    pk: object
    due: float


@dataclass(slots=True)
class InState:
    """The objects in one state. ``oldest``: the longest stay in seconds. ``cut``: the counts ended at a limit."""

    name: str
    state: State | None = None
    ready: int = 0
    resting: int = 0
    leased: int = 0
    stuck: int = 0
    oldest: float | None = None
    # Seconds since the first ready object was due, and the first that is due and not marked ready.
    waited: float | None = None
    unmarked: float | None = None
    cut: bool = False

    @property
    def count(self) -> int:
        """The number of objects in the state."""
        return self.ready + self.resting + self.leased

    @property
    def heat(self) -> int:
        """From 0 (fine) to 3 (far too long), by ``expect_within``; always 0 without it."""
        expected = self.state.expect_within if self.state else None
        if self.oldest is None or not expected or not (self.state and self.state.automatic):
            return 3 if self.stuck else 0
        return sum(self.oldest > share * expected for share in (0.25, 0.5, 1.0))


@dataclass(slots=True)
class Depths:
    """A model: its states, its ready objects and how long the first has waited, held and stuck objects."""

    states: dict[str, InState]
    ready: int = 0
    waited: float | None = None
    quarantined: int = 0
    # The number of objects whose latest attempt failed and that nobody holds.
    failing: int = 0
    # The number of objects in each state that this code does not know.
    unknown_states: Counter[str] = field(default_factory=Counter)
    held: list[Held] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    # The number of objects in each state that are due in the far future, and the first of them.
    far: Counter[str] = field(default_factory=Counter)
    far_first: list[Far] = field(default_factory=list)

    @property
    def unknown(self) -> int:
        """The number of objects in states that this code does not know."""
        return self.unknown_states.total()

    @property
    def unmarked(self) -> float | None:
        """Seconds since the first object was due that is not marked ready; None if there is none."""
        return max((one.unmarked for one in self.states.values() if one.unmarked is not None), default=None)

    @property
    def leased(self) -> int:
        """The number of objects that workers hold."""
        return sum(one.leased for one in self.states.values())

    @property
    def late(self) -> int:
        """The number of leases that ran out and are not ended yet."""
        return sum(one.late > 0 for one in self.held)

    @property
    def stuck_count(self) -> int:
        """The number of objects that are known to be stuck."""
        return sum(one.stuck for one in self.states.values())


def depths(rows: OperatorQuerySet) -> Depths:
    """Return the numbers of a model by the one statement that :func:`_question` makes.

    It takes one more statement if rows are held, one if some are due in the far future, and one for each state with
    stuck rows.
    """
    model: type[StatorModel] = rows.model
    using, states = rows.db, model.state_graph.states
    found = Depths({name: InState(name, state) for name, state in states.items()})
    expected = tuple(state.expect_within for state in states.values())
    counted = tally(using, _question(model, using, COUNTED + 1, load_settings().MAX_CRASHES, expected))
    ready, held, quarantined, unknown, failing, far, *rested = (counted[number] for number in range(6 + len(states)))
    found.quarantined, found.failing = map(_count, (quarantined, failing))
    found.unknown_states.update({some.state: some.count for some in unknown})
    _note_ready(rows, ready, found)
    found.far.update({some.state: some.count for some in far})
    if far:
        _read_far(rows, found)
    if held:
        _read_held(rows, found)
    for state, resting in zip(states.values(), rested, strict=True):
        _note_resting(rows, state, resting, found)
    found.stuck.sort(key=lambda one: -one.age)
    return found


@lru_cache(maxsize=256)
def _question(
    model: type[StatorModel], using: str, most: int, crashes: int, expected: tuple[float | None, ...]
) -> Question:
    """Return the statements for a model; cached, since writing them takes longer than the answer of a small table."""
    rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=using)
    states = model.state_graph.states
    return question(
        using,
        [
            by_state(_ready(rows), _any_late(states.values())),
            in_all(rows.leased().order_by()),
            in_all(rows.filter(state_crashes__gt=0, state_crashes__gte=crashes).order_by()),
            by_state(resting_unknown(rows, [*states]).order_by()),
            in_all(rows.filter(state_failures__gt=0, state_claim=None).order_by()),
            by_state(far_future(rows)),
            *(by_state(_resting(rows, state), _late(state)) for state in states.values()),
        ],
        most,
    )


def told(count: int, cut: bool = False) -> str:
    """Return a count as text: ``10,000+`` if the count ended at the limit."""
    return f"{min(count, COUNTED):,}+" if cut or count > COUNTED else f"{count:,}"


def resting_unknown(rows: OperatorQuerySet, known: list[str]) -> OperatorQuerySet:
    """Return resting rows in states other than the known ones."""
    return rows.filter(outside(known), state_ready=False, state_claim=None).exclude(state__in=known)


def far_future(rows: OperatorQuerySet) -> OperatorQuerySet:
    """Return rows that are due in the far future, the first of them first. Index ``st_rest``.

    States with an ``expect_within`` that is longer are left out, and so are parked rows.
    """
    states = [state.name for state in rows.model.state_graph.automatic_states if (state.expect_within or 0) <= FAR]
    resting = rows.filter(state_ready=False, state_claim=None, state__in=sorted(states))
    far = resting.filter(state_next_attempt__gt=columns.after(FAR), state_next_attempt__lt=columns.parked_from())
    return far.order_by("state_next_attempt")


def outside(known: list[str]) -> Q:
    """Return ranges of the index ``st_rest`` between the known states; the caller must exclude known states as well."""
    known = sorted(known)
    gaps = Q(state__lt=known[0]) | Q(state__gt=known[-1])
    for one, other in pairwise(known):
        gaps |= Q(state__gt=one, state__lt=other)
    # A database may order names differently: ranges then contain known states, but miss no others.
    return gaps


def _ready(rows: OperatorQuerySet) -> OperatorQuerySet:
    """Return the ready rows, first in line first. Index ``st_ready``, or ``st_age`` if there are priorities."""
    return rows.filter(state_ready=True).order_by(*line_of_all(rows.model, by_age=True))


def _resting(rows: OperatorQuerySet, state: State) -> OperatorQuerySet:
    """Return the rows of a state that are neither held nor ready, first due first. Index ``st_rest``."""
    resting = rows.filter(state_ready=False, state_claim=None, state=state.name)
    return resting.order_by("state_next_attempt", "state_changed")


def _note_ready(rows: OperatorQuerySet, ready: list[Tally], found: Depths) -> None:
    found.ready, found.waited = _count(ready), max((one.waited for one in ready), default=None)
    for one in found.states.values():
        one.cut = found.ready > COUNTED and one.state is not None and one.state.automatic
    for some in ready:
        there = found.states.get(some.state)
        if there is None or there.state is None:
            # No worker claims them, so they are at the head of the line.
            found.unknown_states[some.state] += some.count
            continue
        there.ready, there.oldest, there.stuck, there.waited = some.count, some.oldest, some.late, some.waited
        if some.late:
            _name(_ready(rows).filter(_late(there.state), state=there.name), there, found, some.late)


def _note_resting(rows: OperatorQuerySet, state: State, resting: list[Tally], found: Depths) -> None:
    one = found.states[state.name]
    for some in resting:
        one.resting, one.cut = some.count, one.cut or some.count > COUNTED
        one.oldest = max(one.oldest or 0.0, some.oldest)
        one.stuck += some.late
        if state.automatic and some.waited > 0:
            one.unmarked = some.waited
        if some.late:
            # No more than were counted: the search for one more would read all rows.
            _name(_resting(rows, state).filter(_late(state)), one, found, some.late)


def _name(line: OperatorQuerySet, one: InState, found: Depths, count: int) -> None:
    age = ExpressionWrapper(Now() - F("state_changed"), output_field=DurationField())
    rows = line.annotate(stator_age=age).values_list("pk", "stator_age")[: min(NAMED, count)]
    found.stuck += [Stuck(pk, one.name, seconds_of(age)) for pk, age in rows]


def _read_far(rows: OperatorQuerySet, found: Depths) -> None:
    first = far_future(rows).annotate(stator_now=Now())
    for pk, due, now in first.values_list("pk", "state_next_attempt", "stator_now")[:FAR_NAMED]:
        found.far_first.append(Far(pk, (due - now).total_seconds()))


def _read_held(rows: OperatorQuerySet, found: Depths) -> None:
    """Read the claimed rows in the order of their leases' ends. Index ``st_lease``."""
    names = ("pk", "state", "state_claim", "state_attempted", "state_locked_until", "state_changed", "stator_now")
    held = rows.leased().annotate(stator_now=Now()).order_by("state_locked_until")
    for pk, state, token, since, until, changed, now in held.values_list(*names)[:LEASED]:
        one = found.states.setdefault(state, InState(state))
        one.leased += 1
        age = _between(changed, now)
        one.oldest = max(one.oldest or 0.0, age)
        found.held.append(Held(pk, state, token, _between(since, now), (now - until).total_seconds()))
        if one.state and one.state.expect_within and age > one.state.expect_within:
            one.stuck += 1
            found.stuck.append(Stuck(pk, state, age))


def _late(state: State) -> Q | None:
    """Return a filter for rows that are in the state for longer than expected; None without ``expect_within``."""
    return Q(state_changed__lte=columns.after(-state.expect_within)) if state.expect_within else None


def _any_late(states: Iterable[State]) -> Q | None:
    late = [Q(q, state=state.name) for state in states if (q := _late(state))]
    return reduce(or_, late) if late else None


def _count(tallies: list[Tally]) -> int:
    return sum(one.count for one in tallies)


def _between(since: datetime | None, now: datetime) -> float:
    return seconds_of(now - since) if since else 0.0
