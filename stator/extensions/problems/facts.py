"""Facts about one object, read in at most eight statements; every time is the database's."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from django.db import router
from django.db.models import F, Model, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.expressions import Combinable

from stator.conf import Settings, load_settings
from stator.graph.states import State
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.claimable import claimable
from stator.rows.clock import Now
from stator.rows.dates import Deadline, Start, deadline_of, deadlines_of, moment_by, start_of, starts_of
from stator.rows.due_times import parked_from
from stator.rows.indexes import place_in_line
from stator.rows.left import left_by
from stator.rows.meta import graph_of, options_of, owner_of
from stator.rows.news import HowFar, how_far
from stator.rows.priorities import priority_of
from stator.rows.readings import read
from stator.rows.state_column import state_field
from stator.rows.workers import GRAPHS, LEFT, Worker, live_workers, worker_of
from stator.scopes import are_apart
from stator.survey.estimates import Estimate

# Rows ahead are counted up to this number; counting a million would be no more useful.
LINE = 1000

Known = TypeVar("Known", covariant=True)
Wanted = TypeVar("Wanted")


class Fact(Generic[Known]):
    """What the kinds of an extension know of one object. It is made before the object is read, and may read itself.

    ``holds_up``: whether workers leave an object alone of which it knows something. ``moves_on``: whether something
    else than a handler, a timeout or a condition may move it then, such as other objects.
    """

    holds_up: ClassVar[bool] = False
    moves_on: ClassVar[bool] = False

    def __init__(self, model: type[Model], using: str) -> None:
        self.model, self.using = model, using

    def columns(self, rows: QuerySet[Model], key: object) -> Mapping[str, object]:
        """Return further values of the row, which ``facts.row`` then has; ``key``: of the row, for a subquery."""
        return {}

    def running(self, states: list[State]) -> list[State]:
        """Return those of these states in which objects are claimed."""
        return states

    def together(self, state: State, states: list[State]) -> list[State]:
        """Return those of these states whose objects may be claimed together with those of a state."""
        return states

    def known(self, facts: "Facts") -> Known:
        """Return what it knows, once the object is read."""
        raise NotImplementedError


class LatestReport(Protocol):
    """The latest error of an object, or its latest reason to wait, ``times`` in a row; ``error``: empty for these."""

    state: str
    at: datetime
    error: str
    message: str
    times: int
    worker: str


class Retry(Protocol):
    """A retry by hand."""

    at: datetime
    actor: str


@dataclass(kw_only=True)
class Facts:
    """One object as the database has it at ``now``, with the workers and the latest report that concern it."""

    model: type[Model]
    pk: object
    settings: Settings
    row: dict[str, Any]
    now: datetime
    report: LatestReport | None = None
    workers: list[Worker] = field(default_factory=list)
    # The states that every one of them leaves to other code.
    left_by_workers: frozenset[str] = frozenset()
    # The live workers that know its state, as ``host/pid``, if this code does not.
    knowing: list[str] = field(default_factory=list)
    holder: Worker | None = None
    ahead: int = 0
    # When so many are done as are before it, and it.
    turn: Estimate | None = None
    fair_by: dict[str, object] = field(default_factory=dict)
    # If the object is in quarantine: how processes ended while they attempted it, with how many of them.
    endings: Counter[str] = field(default_factory=Counter)
    # The latest retry by hand, of an object that is in quarantine or has lost leases.
    retry: Retry | None = None
    # How far the attempt is that holds the object, if it has said so.
    progress: HowFar | None = None
    # What kinds of extensions know of it, and have said so far.
    further: Mapping[type[Fact[object]], Fact[object]] = field(default_factory=dict)
    said_by: dict[type[Fact[object]], Any] = field(default_factory=dict)

    def of(self, kind: type[Fact[Wanted]]) -> Wanted:
        """Return what a fact knows of it."""
        if kind not in self.said_by:
            self.said_by[kind] = self.further[kind].known(self)
        known: Wanted = self.said_by[kind]
        return known

    @property
    def name(self) -> str:
        """The name of its state."""
        field = state_field(self.model)
        return field.name_of(self.row[field.name])

    @cached_property
    def state(self) -> State | None:
        """Its state; None if this code does not know it."""
        return graph_of(self.model).states.get(self.name)

    @property
    def deadline(self) -> Deadline | None:
        """The deadline of its state, if that is a date; ``row`` has it as ``stator_deadline``."""
        return deadline_of(self.model, self.state)

    @property
    def start(self) -> Start | None:
        """The date of its state before which it is not attempted, if that decides when it is."""
        due, moment = self.row["state_next_attempt"], self.row.get("stator_start")
        decides = moment is not None and not self.parked and (due is None or moment > due)
        return start_of(self.model, self.state) if decides else None

    @property
    def due(self) -> datetime | None:
        """When it is due; None for now."""
        moment: datetime | None = self.row["stator_start" if self.start else "state_next_attempt"]
        return moment

    @property
    def unmanaged(self) -> bool:
        """Whether it has no state, so that it is none of Stator's."""
        return self.row[state_field(self.model).name] is None

    @property
    def lost(self) -> bool:
        """Whether it has a state that this code does not know."""
        return self.state is None and not self.unmanaged

    @property
    def left(self) -> bool:
        """Whether its state is left to other code for now: by this process, or by all live workers."""
        names = state_field(self.model).left | self.left_by_workers
        return self.state is not None and self.state.name in names

    @property
    def rests_outside(self) -> bool:
        """Whether something else than a worker moves it on."""
        return self.state is not None and not (self.state.terminal or self.automatic)

    def is_followed(self, *, besides: type[Fact[object]] | None = None) -> bool:
        """Return whether something that an extension knows moves it on, ``besides`` that one."""
        return any(self.of(kind) for kind in self.further if kind.moves_on and kind is not besides)

    @property
    def renamed(self) -> bool:
        """Whether its state is the former name of another state, so that workers of this code move it."""
        return self.name in graph_of(self.model).renames

    @property
    def automatic(self) -> bool:
        """Whether workers attempt objects in its state."""
        return self.state is not None and self.state.automatic

    @property
    def claimed(self) -> bool:
        """Whether it is claimed."""
        return self.row["state_claim"] is not None

    @property
    def lease_over(self) -> bool:
        """Whether it is claimed and the lease has run out."""
        until = self.row["state_locked_until"]
        return self.claimed and until is not None and until <= self.now

    @property
    def quarantined(self) -> bool:
        """Whether it lost too many leases, so that workers leave it alone."""
        return bool(self.automatic and self.row["state_crashes"] >= self.settings.MAX_CRASHES)

    @property
    def in_turn(self) -> bool:
        """Whether nothing about the object itself prevents an attempt."""
        held_up = self.left or self.claimed or self.quarantined or self.waiting
        return self.automatic and not (held_up or any(self.of(kind) for kind in self.further if kind.holds_up))

    @property
    def in_line(self) -> bool:
        """Whether it is claimed as soon as it is its turn."""
        return self.in_turn and self.ready

    @property
    def ready(self) -> bool:
        """Whether it is marked ready."""
        return bool(self.row["state_ready"])

    @property
    def rests(self) -> bool:
        """Whether it would be attempted if it were due."""
        return self.automatic and self.waiting and not (self.claimed or self.quarantined)

    @property
    def waiting(self) -> bool:
        """Whether it has a due time in the future and is not parked."""
        return self.due is not None and self.due > self.now and not self.parked

    @property
    def parked(self) -> bool:
        """Whether it is parked: not ready until an awaited object moves."""
        due = self.row["state_next_attempt"]
        return not (self.ready or self.claimed) and due is not None and due >= parked_from()

    @property
    def failed(self) -> bool:
        """Whether its last attempts failed."""
        return bool(self.row["state_failures"])

    @property
    def needs_worker(self) -> bool:
        """Whether a worker has to do something before it moves: attempt, reclaim, rename it, or have it time out."""
        state = self.state
        if self.unmanaged:
            return False
        return (state is None or state.needs_worker) and not self.quarantined and (not self.claimed or self.lease_over)

    def since(self, column: str) -> float:
        """Return the seconds since the time in a column; negative for a time in the future."""
        return (self.now - self.row[column]).total_seconds()

    def until_due(self) -> float:
        """Return the seconds until it is due; negative if it has been due."""
        return (self.due - self.now).total_seconds() if self.due else -self.since("state_changed")


def gather(
    model: type[Model], pk: object, using: str | None = None, *, further: Iterable[type[Fact[object]]] = ()
) -> Facts | None:
    """Return the facts about an object, None if it is gone; at most eight statements, ten with several nodes."""
    owner = owner_of(model)
    using = using or router.db_for_write(owner)
    rows: QuerySet[Model] = QuerySet(owner, using=using)
    facts = _read_row(owner, pk, rows, {kind: kind(owner, using) for kind in further})
    if facts is None:
        return None
    if facts.automatic and not facts.claimed and (facts.waiting or facts.quarantined or not facts.ready):
        facts.report = read("report", using, owner, pk, otherwise=None)
    if facts.quarantined and not facts.claimed:
        held = read("lost_holders", using, owner, pk, otherwise=())
        latest = facts.report.worker if facts.report else ""
        ended = read("processes", using, Q(pk__in=held) | Q(pk=latest), otherwise={})
        facts.endings = Counter(process.ending for process in ended.values() if process.ending)
    if facts.automatic and facts.row["state_crashes"] >= facts.settings.alone_from:
        facts.retry = read("retry", using, owner, pk, otherwise=None)
    _read_workers(facts, using)
    if facts.in_line:
        _read_line(facts, rows)
    return facts


def _read_row(
    owner: type[Model], pk: object, rows: QuerySet[Model], further: Mapping[type[Fact[object]], Fact[object]]
) -> Facts | None:
    key = pk if are_apart(owner, rows.db) else OuterRef("pk")
    matches: dict[str, object] = {}
    for fact in further.values():
        matches |= fact.columns(rows, key)
    options = options_of(owner)
    own_columns = {name for name in (options.fair_by, options.spread) if name}
    field = state_field(owner)
    dated = {"stator_deadline": moment_by(owner, deadlines_of(owner))} if deadlines_of(owner) else {}
    dated |= {"stator_start": moment_by(owner, starts_of(owner))} if starts_of(owner) else {}
    names = field.name, *FRAMEWORK_COLUMNS, *own_columns
    row = rows.filter(pk=pk).values(*names, stator_now=Now(), **matches, **dated).first()
    if row is None:
        return None
    return Facts(model=owner, pk=pk, settings=load_settings(), row=row, now=row["stator_now"], further=further)


def _read_workers(facts: Facts, using: str) -> None:
    """Read the live workers that serve the model, the worker that holds the object, alive or not, and how far it is."""
    if facts.claimed:
        facts.holder = Worker.objects.using(using).filter(pk=worker_of(facts.row["state_claim"])).first()
        key = facts.model._meta.label_lower, str(facts.pk)
        facts.progress = how_far(using, {key: facts.row["state_claim"]}).get(key)
    live = live_workers(using, graphs=GRAPHS, left=LEFT)
    if facts.lost and not facts.renamed and (fleet := read("fleet", using, live, otherwise=None)):
        facts.knowing = fleet.knowing(facts.model).get(facts.name, [])
    label = facts.model._meta.label_lower
    facts.workers = [worker for worker in live if worker.serves(label)]
    facts.left_by_workers = left_by(facts.workers, label)


def _read_line(facts: Facts, rows: QuerySet[Model]) -> None:
    """Count the rows that will be claimed before this one."""
    state = facts.state
    if state is None:
        return
    options, then = options_of(facts.model), dict[str, object]()
    own = rows.filter(pk=facts.pk, **({options.spread: facts.row[options.spread]} if options.spread else {}))
    turn = _value_of(own, place_in_line())
    # By "at most" where "equal" would do: Django 6.1 takes an equal subquery of a composite key for all of its columns.
    earlier = Q(turn__lt=F("mine")) | Q(turn__lte=F("mine"), pk__lt=facts.pk)
    if options.then is not None:
        then = {"then": options.then, "my_then": _value_of(own, options.then)}
        earlier = Q(then__lt=F("my_then")) | Q(earlier, then__lte=F("my_then"))
    if priority := priority_of(facts.model):
        first = priority.expression
        then |= {"stator_first": first, "my_first": _value_of(own, first)}
        earlier = Q(stator_first__lt=F("my_first")) | Q(earlier, stator_first__lte=F("my_first"))
    line = rows.filter(claimable(state_field(facts.model), _claimed_with(facts, state), facts.settings))
    if name := options.fair_by:
        facts.fair_by = {name: facts.row[name]}
        line = line.filter(**facts.fair_by)
    in_line = line.annotate(turn=place_in_line(), mine=turn, **then).filter(earlier)
    facts.ahead = in_line.order_by().values("pk")[: LINE + 1].count()
    if facts.ahead and facts.workers and not facts.fair_by:
        label = facts.model._meta.label_lower
        pace = read("paces", rows.db, [label], otherwise={}).get(label)
        states = _claimed_with(facts, state)
        more = facts.ahead > LINE
        facts.turn = pace.estimate(facts.ahead if more else facts.ahead + 1, states, more=more) if pace else None


def _value_of(own: QuerySet[Model], value: Combinable) -> Subquery | Value:
    """Return the value of an expression for one row, to compare with.

    It is compared within the database, because SQLite stores times as texts of different precision. With several nodes,
    it is read before: such a subquery would be sent to all of them for each time that it is used.
    """
    selected = own.values_list(value, flat=True)[:1]
    return Value(next(iter(selected), None)) if are_apart(own.model, own.db) else Subquery(selected)


def _claimed_with(facts: Facts, state: State) -> list[str]:
    """Return the states whose rows are claimed together with a state's rows."""
    together = list(graph_of(facts.model).automatic_states)
    for fact in facts.further.values():
        together = fact.together(state, fact.running(together))
    return sorted(other.name for other in together if _manner(other) == _manner(state))


def _manner(state: State) -> tuple[bool, int]:
    return state.is_async, state.batch or 1
