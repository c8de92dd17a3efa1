"""How many objects of a model are in which state, and for how long: bounded, whatever the table holds."""

from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import Count, DurationField, ExpressionWrapper, F, Min, Q
from django.db.models.functions import Now

from stator import columns
from stator.conf import load_settings
from stator.graph import State
from stator.indexes import line_of_all, place_in_line
from stator.querysets import OperatorQuerySet

# Of the rows of one state, or of those that are ready, so many are counted.
COUNTED = 10_000

# Claimed rows that are looked at.
LEASED = 1000

# Stuck objects of one state that are named.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Held:
    """An object that a worker holds; ``running`` and ``late`` in seconds, ``late`` above 0 once its lease ran out."""

    pk: Any
    state: str
    token: UUID
    running: float
    late: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """An object that is longer in its state than it should be, in seconds."""

    pk: Any
    state: str
    age: float


@dataclass(slots=True)
class InState:
    """The objects in one state. ``oldest``: seconds that one has been there. ``cut``: there may be more of it all."""

    name: str
    state: State | None = None
    ready: int = 0
    resting: int = 0
    leased: int = 0
    stuck: int = 0
    oldest: float | None = None
    cut: bool = False

    @property
    def count(self) -> int:
        """All of them."""
        return self.ready + self.resting + self.leased

    @property
    def heat(self) -> int:
        """From 0 for nothing to worry about to 3 for far too long, by ``expect_within`` or else by hours."""
        if self.oldest is None or self.state is None or not self.state.automatic:
            return 3 if self.stuck else 0
        expected = self.state.expect_within or 3600.0
        return sum(self.oldest > share * expected for share in (0.25, 0.5, 1.0))


@dataclass(slots=True)
class Depths:
    """A model: its states, what is ready and since when, what workers hold, what is stuck."""

    states: dict[str, InState]
    ready: int = 0
    waited: float | None = None
    quarantined: int = 0
    # In states that this code does not know.
    unknown: int = 0
    held: list[Held] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)

    @property
    def leased(self) -> int:
        """How many objects workers hold."""
        return sum(one.leased for one in self.states.values())

    @property
    def late(self) -> int:
        """How many leases ran out and were not ended yet."""
        return sum(one.late > 0 for one in self.held)

    @property
    def stuck_count(self) -> int:
        """How many objects are known to be stuck."""
        return sum(one.stuck for one in self.states.values())


def depths(rows: OperatorQuerySet) -> Depths:
    """The figures of a model, in four statements and one for each state, and one where objects of it are stuck."""
    graph = rows.model.state_graph
    found = Depths({name: InState(name, state) for name, state in graph.states.items()})
    _read_ready(rows, found)
    _read_held(rows, found)
    for state in graph.states.values():
        _read_resting(rows, state, found)
    found.quarantined = bounded(rows.filter(state_crashes__gt=0, state_crashes__gte=load_settings().MAX_CRASHES))
    found.unknown += bounded(resting_unknown(rows, [*graph.states]))
    found.stuck.sort(key=lambda one: -one.age)
    return found


def bounded(rows: Any) -> int:
    """How many rows there are, counted up to one more than ``COUNTED``."""
    return int(rows.order_by().values("pk")[: COUNTED + 1].count())


def told(count: int, cut: bool = False) -> str:
    """A count in words: ``10,000+`` where counting was given up."""
    return f"{min(count, COUNTED):,}+" if cut or count > COUNTED else f"{count:,}"


def resting_unknown(rows: OperatorQuerySet, known: list[str]) -> Any:
    """Resting rows in states other than the known ones."""
    return rows.filter(outside(known), state_ready=False, state_claim=None).exclude(state__in=known)


def outside(known: list[str]) -> Q:
    """States that lie between the known ones, as ranges of the index ``st_rest``; exclude the known ones as well."""
    known = sorted(known)
    gaps = Q(state__lt=known[0]) | Q(state__gt=known[-1])
    for one, other in pairwise(known):
        gaps |= Q(state__gt=one, state__lt=other)
    # A database may order names otherwise than Python: no other state is missed, but ranges may hold known ones.
    return gaps


def _read_ready(rows: OperatorQuerySet, found: Depths) -> None:
    """The ready rows, first in line first. Index ``st_ready``, or ``st_age`` where there are priorities."""
    states = [one for one in found.states.values() if one.state and one.state.automatic]
    line = _ready(rows)
    wanted: dict[str, Any] = {"waited": _since("turn"), "count": Count("state")}
    # Nobody claims them, so they are at the head of the line.
    wanted["unknown"] = Count("state", filter=~Q(state__in=list(rows.model.state_graph.states)))
    for number, one in enumerate(states):
        here = Q(state=one.name)
        wanted[f"count_{number}"] = Count("state", filter=here)
        wanted[f"oldest_{number}"] = _since("state_changed", here)
        if one.state and one.state.expect_within:
            wanted[f"stuck_{number}"] = Count("state", filter=here & _late(one.state))
    numbers = line.values("state", "state_changed", "turn")[: COUNTED + 1].aggregate(**wanted)
    found.ready, found.waited = numbers["count"], _seconds(numbers["waited"])
    found.unknown = numbers["unknown"]
    for number, one in enumerate(states):
        one.ready, one.stuck = numbers[f"count_{number}"], numbers.get(f"stuck_{number}", 0)
        one.oldest, one.cut = _seconds(numbers[f"oldest_{number}"]), found.ready > COUNTED
        if one.stuck and one.state:
            _name(line.filter(_late(one.state), state=one.name), one, found)


def _ready(rows: OperatorQuerySet) -> Any:
    line = rows.filter(state_ready=True).annotate(turn=place_in_line())
    return line.order_by(*line_of_all(rows.model, by_age=True))


def _read_resting(rows: OperatorQuerySet, state: State, found: Depths) -> None:
    """Rows of a state that nobody holds and that are not ready, the first due first. Index ``st_rest``."""
    one = found.states[state.name]
    resting = rows.filter(state_ready=False, state_claim=None, state=state.name)
    line = resting.order_by("state_next_attempt", "state_changed")
    wanted: dict[str, Any] = {"count": Count("state_changed"), "oldest": _since("state_changed")}
    if state.expect_within:
        wanted["stuck"] = Count("state_changed", filter=_late(state))
    # No other column, so that the index alone answers.
    numbers = line.values("state_next_attempt", "state_changed")[: COUNTED + 1].aggregate(**wanted)
    one.resting, one.cut = numbers["count"], one.cut or numbers["count"] > COUNTED
    oldest = _seconds(numbers["oldest"])
    one.oldest = max(filter(None, (one.oldest, oldest)), default=None)
    if stuck := numbers.get("stuck", 0):
        one.stuck += stuck
        # No more than there are among those counted: the search for one that is not there would read them all.
        _name(line.filter(_late(state)), one, found, stuck)


def _name(line: Any, one: InState, found: Depths, count: int = NAMED) -> None:
    least = min(NAMED, count, one.stuck)
    age = ExpressionWrapper(Now() - F("state_changed"), output_field=DurationField())
    rows = line.annotate(stator_age=age).values_list("pk", "stator_age")[:least]
    found.stuck += [Stuck(pk, one.name, _seconds(seconds) or 0.0) for pk, seconds in rows]


def _read_held(rows: OperatorQuerySet, found: Depths) -> None:
    """The claimed rows, the first to run out first. Index ``st_lease``."""
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


def _late(state: State) -> Q:
    return Q(state_changed__lte=columns.after(-(state.expect_within or 0.0)))


def _between(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since else 0.0


def _since(name: str, condition: Q | None = None) -> Any:
    return ExpressionWrapper(Now() - Min(name, filter=condition), output_field=DurationField())


def _seconds(span: Any) -> float | None:
    return None if span is None else max(0.0, span.total_seconds())
