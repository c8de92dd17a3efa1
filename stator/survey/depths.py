"""How many objects of a model are in each state, and for how long: bounded, however many rows the table has."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, reduce
from itertools import chain, pairwise
from operator import or_

from django.db import connections
from django.db.models import Model, Q, QuerySet, Value

from stator.conf import load_settings
from stator.db.bounded_counts import Answer, Question, Tally, by_state, in_all, question, tally
from stator.db.values import Row
from stator.graph import State
from stator.graph.durations import longest, seconds_of
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows import columns
from stator.rows.claimable import READY, RESTING
from stator.rows.clock import Elapsed, Now
from stator.rows.dates import due_since, start_of
from stator.rows.due_times import parked_from
from stator.rows.indexes import line_of_all
from stator.rows.state_column import UNMANAGED, StateField, state_field
from stator.statements import united
from stator.survey.numbers import LEASED, Depths, Far, Held, InState, Stuck
from stator.texts import COUNTED

# Stuck objects that are listed for each state.
NAMED = 5

# The number of the kind of held rows in a question.
CLAIMED = 1

# Seconds: an object that is due later probably has a wrong due time. How many such objects are named.
FAR, FAR_NAMED = 366 * 86400.0, 20


@dataclass(frozen=True, slots=True)
class StateCounts:
    """What is read of several models at once: the numbers of one of them, and its held rows."""

    numbers: Answer
    held: list[Held]


def counts(rows_of: Mapping[str, OperatorQuerySet]) -> dict[str, StateCounts]:
    """Return the counts of some models of one database, by their labels: one statement, and one if rows are held.

    There is one more for each further type of keys, and on SQLite one for each model with held rows.
    """
    if not rows_of:
        return {}
    using = next(iter(rows_of.values())).db
    numbers = dict(zip(rows_of, tally(using, *map(_question_of, rows_of.values())), strict=True))
    claimed = held_by_label({label: rows for label, rows in rows_of.items() if numbers[label][CLAIMED]})
    return {label: StateCounts(each, claimed.get(label, [])) for label, each in numbers.items()}


def depths(rows: OperatorQuerySet, counted: StateCounts | None = None) -> Depths:
    """Return the numbers of a model by what is ``counted`` of it, or else by one or two statements.

    It takes one more statement if some rows are due in the far future, one for each state with stuck rows, and two for
    each state with quarantined rows that are due.
    """
    label, states = rows.model._meta.label_lower, rows.model.state_graph.states
    counted = counted or counts({label: rows})[label]
    counted_depths = empty(rows)
    numbers = counted.numbers
    answers = map(numbers.__getitem__, range(7 + len(counted_depths.states)))
    ready, claimed, quarantined, apart, unknown, failed, far, *rested = answers
    counted_depths.quarantined = _count(quarantined)
    counted_depths.failing = min(COUNTED + 1, max(0, _count(failed) - sum(one.flagged for one in claimed)))
    counted_depths.unknown_states.update({some.value: some.count for some in unknown})
    _note_ready(rows, ready, counted_depths)
    counted_depths.far.update({some.value: some.count for some in far})
    if far:
        _read_far(rows, counted_depths)
    _note_held(counted.held, counted_depths)
    for state, resting in zip(states.values(), rested, strict=False):
        _note_resting(rows, state, resting, counted_depths)
    if UNMANAGED in counted_depths.states:
        _note_unmanaged(rested[-1], counted_depths)
    _leave_out_quarantined(rows, ready, apart, counted_depths)
    counted_depths.stuck.sort(key=lambda one: -one.age)
    return counted_depths


def empty(rows: OperatorQuerySet) -> Depths:
    """Return the numbers of a model without objects."""
    states = {name: InState(name, state) for name, state in rows.model.state_graph.states.items()}
    return Depths(states | ({UNMANAGED: InState(UNMANAGED)} if state_field(rows.model).null else {}))


def _question_of(rows: OperatorQuerySet) -> Question:
    model: type[StatorModel] = rows.model
    expected = tuple(state.expect_within for state in model.state_graph.states.values())
    return _question(model, str(rows.db), COUNTED + 1, load_settings().MAX_CRASHES, expected)


@lru_cache(maxsize=256)
def _question(
    model: type[StatorModel], using: str, most: int, crashes: int, expected: tuple[float | None, ...]
) -> Question:
    """Return what to ask of a model; cached, since writing it takes longer than the answer of a small table."""
    rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=using)
    states, automatic = model.state_graph.states, model.state_graph.automatic_states
    quarantined = rows.filter(state_crashes__gt=0, state_crashes__gte=crashes).order_by()
    # Those that would be attempted.
    apart = quarantined.filter(Q(**state_field(model).among(sorted(automatic, key=str))), state_claim=None)
    return question(
        using,
        [
            by_state(_ready(rows), _any_late(model, states.values()), Q(state_crashes__gte=crashes)),
            in_all(rows.leased().order_by(), Q(state_failures__gt=0)),
            in_all(quarantined),
            by_state(apart, _any_late(model, automatic), Q(state_failures__gt=0)),
            by_state(resting_unknown(rows).order_by()),
            # Held rows, which an index alone cannot leave out, are subtracted, up to this number.
            in_all(rows.filter(state_failures__gt=0).order_by())[: 2 * most],
            by_state(far_future(rows)),
            *(by_state(resting_in(rows, state), _late(state)) for state in states.values()),
            *([by_state(_unmanaged(rows))] if state_field(model).null else []),
        ],
        most,
    )


def resting_unknown(rows: OperatorQuerySet) -> OperatorQuerySet:
    """Return resting rows in unknown states, between the known ones in the index ``st_rest``."""
    return rows.filter(RESTING, _outside(state_field(rows.model))).unknown()


def _unmanaged(rows: OperatorQuerySet) -> OperatorQuerySet:
    """Return resting rows without a state. Index ``st_rest``."""
    unmanaged: OperatorQuerySet = state_field(rows.model).unmanaged(rows.filter(RESTING))
    return unmanaged.order_by("state_next_attempt", "state_changed")


def far_future(rows: OperatorQuerySet) -> OperatorQuerySet:
    """Return rows that are due in the far future, the first of them first. Index ``st_rest``.

    States with an ``expect_within`` that is longer are left out, and so are parked rows.
    """
    states = [state for state in rows.model.state_graph.automatic_states if (state.expect_within or 0) <= FAR]
    resting = rows.filter(RESTING, **state_field(rows.model).among(sorted(states, key=str)))
    far = resting.filter(state_next_attempt__gt=columns.after(FAR), state_next_attempt__lt=parked_from())
    # Quarantined ones have a problem of their own.
    return far.filter(state_crashes__lt=load_settings().MAX_CRASHES).order_by("state_next_attempt")


def _outside(field: StateField) -> Q:
    """Return ranges of the index ``st_rest`` between the known states; the caller must exclude known states as well."""
    known = sorted(state.value for state in field.states.values())
    before, behind = f"{field.name}__lt", f"{field.name}__gt"
    gaps = Q(**{before: known[0]}) | Q(**{behind: known[-1]})
    for one, other in pairwise(known):
        gaps |= Q(**{behind: one, before: other})
    # A database may order names differently: ranges then contain known states, but still all unknown ones.
    return gaps


def _ready(rows: OperatorQuerySet) -> OperatorQuerySet:
    """Return the ready rows, first in line first. Index ``st_ready``, or ``st_age`` if there are priorities."""
    return rows.filter(READY).order_by(*line_of_all(rows.model, by_age=True))


def resting_in(rows: OperatorQuerySet, state: State) -> OperatorQuerySet:
    """Return the rows of a state that are neither held nor ready, first due first. Index ``st_rest``."""
    return rows.filter(RESTING, **state_field(rows.model).at(state)).order_by("state_next_attempt", "state_changed")


def _note_ready(rows: OperatorQuerySet, ready: list[Tally], sums: Depths) -> None:
    # Unmanaged rows are ready only until workers have seen them.
    managed = [one for one in ready if one.value != UNMANAGED]
    sums.ready = _count(managed)
    sums.waited = longest(one.waited for one in managed)
    for one in sums.states.values():
        one.cut = sums.ready > COUNTED and one.state is not None and one.state.automatic
    for some in ready:
        there = sums.states.get(some.value)
        if some.value == UNMANAGED and there is not None:
            there.resting += some.count
            continue
        if there is None or there.state is None:
            # No worker claims them, so they are at the head of the line.
            sums.unknown_states[some.value] += some.count
            continue
        there.ready, there.oldest, there.stuck, there.waited = some.count, some.oldest, some.late, some.waited
        if some.late:
            late = _ready(rows).filter(_late(there.state), **state_field(rows.model).at(there.state))
            _name(late, there, sums, some.late)


def _note_resting(rows: OperatorQuerySet, state: State, resting: list[Tally], sums: Depths) -> None:
    one = sums.states[state.name]
    for some in resting:
        one.resting, one.cut = some.count, one.cut or some.count > COUNTED
        one.oldest = max(one.oldest or 0.0, some.oldest)
        one.stuck += some.late
        if state.automatic and some.waited:
            one.unmarked = some.waited
        if some.late:
            # No more than were counted: the search for one more would read all rows.
            _name(resting_in(rows, state).filter(_late(state)), one, sums, some.late)


def _note_unmanaged(resting: list[Tally], sums: Depths) -> None:
    one = sums.states[UNMANAGED]
    one.resting += _count(resting)
    one.cut = one.resting > COUNTED


def _leave_out_quarantined(rows: OperatorQuerySet, ready: list[Tally], quarantined: list[Tally], sums: Depths) -> None:
    """Subtract the quarantined rows from the others, and set the waits of those: up to two statements for a state."""
    in_line = {some.value: some.flagged for some in ready}
    for some in quarantined:
        one, queued = sums.states[some.value], in_line.get(some.value, 0)
        one.quarantined = some.count
        one.stuck = max(0, one.stuck - some.late)
        one.ready, one.resting = max(0, one.ready - queued), max(0, one.resting - max(0, some.count - queued))
        sums.ready, sums.failing = max(0, sums.ready - queued), max(0, sums.failing - some.flagged)
        if one.unmarked is not None and one.state is not None:
            one.unmarked = _first_due(rows, one.state)


def _first_due(rows: OperatorQuerySet, state: State) -> float | None:
    """Return for how many seconds the first resting row of a state that is not quarantined has been due."""
    waits = Elapsed(due_since(rows.model))
    others = resting_in(rows, state).filter(state_crashes__lt=load_settings().MAX_CRASHES)
    due = [others.filter(state_next_attempt__isnull=part) for part in (True, False)]
    if start := start_of(rows.model, state):
        due += [due[0].filter(start.missing), due.pop(0).order_by(start.date)]
    waiting = [seconds_of(wait) for part in due for wait in part.values_list(waits, flat=True)[:1]]
    return max((wait for wait in waiting if wait), default=None)


def _name(line: OperatorQuerySet, one: InState, sums: Depths, count: int) -> None:
    read = line.annotate(stator_age=columns.stayed()).values_list("pk", "state_crashes", "stator_age")
    most = load_settings().MAX_CRASHES
    rows = read[: min(NAMED, count)]
    sums.stuck += [Stuck(pk, one.name, seconds_of(age)) for pk, crashes, age in rows if crashes < most]


def _read_far(rows: OperatorQuerySet, sums: Depths) -> None:
    first = far_future(rows).values_list("pk", "state_next_attempt")[:FAR_NAMED]
    sums.far_first = [Far(pk, due) for pk, due in first]


def held(rows: OperatorQuerySet) -> list[Held]:
    """Return the claimed rows in the order of their leases' ends, up to ``LEASED``. Index ``st_lease``."""
    return held_by_label({"": rows})[""]


def held_by_label(rows_of: Mapping[str, OperatorQuerySet]) -> dict[str, list[Held]]:
    """Return :func:`held` of each of some models of one database; one statement for those whose keys are alike."""
    alike: dict[object, list[QuerySet[Model, Row]]] = defaultdict(list)
    for label, rows in rows_of.items():
        pk = rows.model._meta.pk
        own = label if rows.model._meta.is_composite_pk else (type(pk), pk.rel_db_type(connections[rows.db]))
        alike[own].append(_claimed(rows, label))
    held: dict[str, list[Held]] = {label: [] for label in rows_of}
    for label, pk, state, token, since, until, changed, now in chain.from_iterable(map(united, alike.values())):
        ages = _between(changed, now), _between(since, now), (now - until).total_seconds()
        held[label].append(Held(pk, state, token, *ages))
    for each in held.values():
        each.sort(key=lambda one: -one.late)
    return held


def _claimed(rows: OperatorQuerySet, label: str) -> QuerySet[Model, Row]:
    field = state_field(rows.model)
    # By name, since a union has one type for each column.
    state = field.name if field.has_names else field.named()
    names = ("pk", state, "state_claim", "state_attempted", "state_locked_until", "state_changed", "stator_now")
    claimed = rows.leased().annotate(stator_now=Now(), stator_label=Value(label)).order_by("state_locked_until")
    return claimed.values_list("stator_label", *names)[:LEASED]


def _note_held(claimed: list[Held], sums: Depths) -> None:
    sums.held = claimed
    for held in claimed:
        one = sums.states.setdefault(held.state, InState(held.state))
        one.leased += 1
        one.oldest = max(one.oldest or 0.0, held.age)
        if one.state and one.state.expect_within and held.age > one.state.expect_within:
            one.stuck += 1
            sums.stuck.append(Stuck(held.pk, held.state, held.age))


def _late(state: State) -> Q | None:
    """Return a filter for rows that are in the state for longer than expected; None without ``expect_within``."""
    return Q(state_changed__lte=columns.after(-state.expect_within)) if state.expect_within else None


def _any_late(model: type[StatorModel], states: Iterable[State]) -> Q | None:
    late = [Q(q, **state_field(model).at(state)) for state in states if (q := _late(state))]
    return reduce(or_, late) if late else None


def _count(tallies: list[Tally]) -> int:
    return sum(one.count for one in tallies)


def _between(since: datetime | None, now: datetime) -> float:
    return seconds_of(now - since) if since else 0.0
