"""The rows of one model in one scope: what a worker knows of them, and querysets."""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, DateTimeField, Expression, F, Model, Q, QuerySet, When
from django.db.models.functions import Greatest, Least

from stator.capabilities import Capabilities, capabilities_of
from stator.conf import Settings
from stator.db.brought import brought_by
from stator.db.conditions import TIME_OUT, conditions_of
from stator.db.division import DIVISIONS
from stator.db.locks import Locks
from stator.db.suspensions import Suspensions
from stator.db.values import Instance
from stator.graph import State
from stator.rows import columns
from stator.rows.claimable import RESTING, Crashes, claimable
from stator.rows.clock import Now
from stator.rows.dates import Deadline, Start, deadlines_of, starts_of
from stator.rows.followers import Follower, followers_of, waking
from stator.rows.meta import function_of, graph_of, options_of
from stator.rows.state_column import state_field
from stator.scopes import Scope

if TYPE_CHECKING:
    from stator.db.interface import Operations

# Seconds that a clock may be set back without ending leases that are being renewed.
CLOCK_SLACK = 5.0


NOW = Now()

# The key of a suspended table.
TABLE = "table"

# Seconds of the shortest lease that a row may have in a worker.
MIN_OF_ROWS = 3.0


class Rows:
    """The rows of one managed model in one scope; all databases have this in common."""

    def __init__(self, model: type[Model], scope: Scope, settings: Settings, worker_id: str) -> None:
        self.model = cast("type[Instance]", model)
        self.scope = scope
        self.alias = scope.alias
        self.settings = settings
        self.worker_id = worker_id
        self.label: str = model._meta.label_lower
        self.pk_name: str = model._meta.pk.attname
        self.graph = graph_of(model)
        self.state_field = state_field(model)
        self.options = options_of(model)
        # Where rows have leases of their own, an expression of the end of one.
        self.own_lease_end = function_of(self.options.lease_end)
        # Whether claims are made by programs, which are no workers.
        self.for_programs = False
        self.deadlines = deadlines_of(model)
        self.starts = starts_of(model)
        # What tells the rows of a part from others, or the hole for it in a statement; None for all rows.
        self.part: object = None
        # Under ``TABLE``, what the table lacks.
        self.suspended = Suspensions()
        # Only a worker's operations limit how long their statements wait.
        self.locks = Locks(self.label)
        store = cast("Operations", self)
        self.conditions = conditions_of(store)
        self.brought = brought_by(store)
        self.division = DIVISIONS.of(store)

    @property
    def lacking(self) -> str:
        """What the table lacks, as one line; until that is repaired, a worker leaves the model out."""
        suspension = self.suspended.held.get(TABLE)
        return str(suspension.reason) if suspension else ""

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """The connection of the calling thread."""
        return connections[self.alias]

    @property
    def capabilities(self) -> Capabilities:
        """What the database can do."""
        return capabilities_of(self.connection)

    @property
    def rows(self) -> QuerySet[Instance]:
        """All rows of the scope, independent of the project's managers."""
        rows = self.undivided if self.part is None else self.undivided.filter(self.scope.where)
        return rows if self._served is None else rows.filter(self._served)

    @cached_property
    def _served(self) -> Q | None:
        """A filter that leaves out the rows that other code moves, whatever else they have; None for no such rows."""
        field = self.state_field
        if field.is_left:
            return Q(pk__in=[])
        former = [name for name, state in self.graph.renames.items() if state.name in field.left]
        return ~Q(**field.among([*sorted(field.left), *former])) if field.left else None

    @property
    def fair_by(self) -> str | None:
        """The name of the field whose values share a claim."""
        return self.division.sharing_by(self.options.fair_by)

    @property
    def undivided(self) -> QuerySet[Instance]:
        """All rows of the model, also if these are operations on a part of them."""
        return QuerySet(self.model, using=self.alias)

    @cached_property
    def saved(self) -> dict[str, tuple[tuple[str, str, str | None], ...]]:
        """The fields that each state saves: their names, their attributes, and the keys of their texts."""
        fields = {field.name: field for field in self.model._meta.concrete_fields}
        places = {name: (name, field.attname, getattr(field, "text_key", None)) for name, field in fields.items()}
        return {state.name: tuple(places[name] for name in state.saves) for state in self.graph.states.values()}

    @cached_property
    def followers(self) -> tuple[Follower, ...]:
        """What follows moves of the rows."""
        return followers_of(self.model)

    @cached_property
    def wakers(self) -> tuple[Follower, ...]:
        """The followers that may say that rows of other models are ready."""
        return waking(self.followers)

    @cached_property
    def entries(self) -> frozenset[str]:
        """The names of the states that are followed when rows enter them."""
        return self.followed.union(*(each.entries for each in self.followers))

    @cached_property
    def followed(self) -> frozenset[str]:
        """The states of :attr:`entries`, without those where an effect of the extension does what follows."""
        others = [each.entries for each in self.followers if not each.recorded]
        return frozenset[str]().union(*others)

    @cached_property
    def exits(self) -> frozenset[str]:
        """The names of the states that are followed when rows leave them."""
        return frozenset[str]().union(*(each.exits for each in self.followers))

    @cached_property
    def waking(self) -> frozenset[str]:
        """The names of the states whose rows are ready when they enter them, or are followed there."""
        states = self.graph.states.values()
        return self.entries | {state.name for state in states if columns.ready_at_once(state)}

    def shortest_leases(self) -> list[float]:
        """Return the seconds of the leases that a worker may have to renew."""
        own = [self.shortest_lease] if self.own_lease_end else []
        return [*own, *(state.lease or self.settings.LEASE for state in self.graph.automatic_states)]

    def crashed(self, crashes: Crashes) -> Q:
        """Return a filter for rows by the number of leases lost in a row."""
        return crashes.matches(self.settings)

    def claimable(self, states: list[State]) -> QuerySet[Model]:
        """Return the ready rows in those of these states that may be claimed in; index ``st_ready``."""
        return self.ready(self.conditions.states(states))

    def ready(self, states: Iterable[State]) -> QuerySet[Model]:
        """Return the ready rows in some states, whatever the conditions; index ``st_ready``."""
        return self.rows.filter(claimable(self.state_field, (state.name for state in states), self.settings))

    def open_rows(self, states: list[State]) -> QuerySet[Model]:
        """Return the rows of :meth:`claimable` that this worker may claim."""
        return self.claimable(states).filter(self.conditions.rows())

    def waiting(self, *states: str) -> QuerySet[Model]:
        """Return the rows of some or all states that workers will attempt once they are due; index ``st_rest``."""
        where = self.state_field.among(states or self.automatic)
        return self.rows.filter(RESTING, **where, state_crashes__lt=self.settings.MAX_CRASHES)

    @cached_property
    def automatic(self) -> list[State]:
        """The automatic states by name: so the text of a statement is the same in every process."""
        return sorted(self.graph.automatic_states, key=str)

    def lease_end(self, since: Expression | F = NOW) -> Expression:
        """Return an expression for the end of a lease that begins now, in an attempt that began at ``since``.

        States and rows may have leases of their own.
        """
        if self.own_lease_end:
            of_row = Greatest(self.own_lease_end(self.settings.LEASE, since), columns.after(self.shortest_lease))
            return Least(of_row, columns.after(self.longest_lease))
        at = self.state_field.at
        own = [When(**at(state), then=columns.after(state.lease or 0)) for state in self._with_own_lease]
        end = columns.after(self.settings.LEASE)
        return Case(*own, default=end, output_field=DateTimeField()) if own else end

    def due(self) -> list[QuerySet[Model]]:
        """Return querysets of the rows to mark ready: their time has come, or they have none, which means now.

        Index ``st_rest``; ``st_try`` for the dates of rows. An OR would read all rows that are due some day.
        """
        dated = {start.state for start in self.starts}
        querysets = [self.waiting().filter(state_next_attempt__lte=Now())]
        if not dated:
            querysets.append(self.waiting().filter(state_next_attempt=None))
        elif others := [state.name for state in self.automatic if state not in dated]:
            querysets.append(self.waiting(*others).filter(state_next_attempt=None))
        for start in self.starts:
            querysets += [self._starting(start).filter(each) for each in (start.met(Now()), start.missing)]
        return querysets

    def beginning(self, start: Start, within: float) -> QuerySet[Model]:
        """Return the rows that wait for a date which comes ``within`` seconds, the first one first.

        Index ``st_try``.
        """
        soon = self._starting(start).filter(start.ahead(Now()), start.met(columns.after(within)))
        return soon.order_by("state_next_attempt", start.date)

    def _starting(self, start: Start) -> QuerySet[Model]:
        there, crashes = self.state_field.at(start.state), self.settings.MAX_CRASHES
        return self.rows.filter(RESTING, **there, state_crashes__lt=crashes, state_next_attempt=None)

    def past(self, deadline: Deadline, within: float = 0.0) -> QuerySet[Model]:
        """Return the unclaimed rows whose deadline has passed, or passes ``within`` seconds; index ``st_at``."""
        return self._dated(deadline).filter(deadline.met(columns.after(within) if within else Now()))

    def nearing(self, deadline: Deadline, within: float) -> QuerySet[Model]:
        """Return the rows of :meth:`past` whose deadline has not passed, the first one first."""
        return self.past(deadline, within).filter(deadline.ahead(Now())).order_by(deadline.date)

    def _dated(self, deadline: Deadline) -> QuerySet[Model]:
        rows = self.rows.filter(state_claim=None, **self.state_field.at(deadline.state))
        if not deadline.state.automatic:
            return rows
        # As with other timeouts, what workers would attempt waits for the end of a pause.
        running = self.conditions.states([deadline.state])
        return rows.filter(self.conditions.rows(TIME_OUT)) if running else rows.none()

    def lost(self) -> list[QuerySet[Model]]:
        """Return querysets of the rows whose leases have run out, or are too long: a clock was set back since.

        If this code does not know a state, only newer workers know how long its leases may be. Index ``st_lease``,
        which has both kinds at its ends. An OR of the two would read all leases.
        """
        held, beyond = self.rows.filter(state_claim__isnull=False), columns.after(self.longest_lease + CLOCK_SLACK)
        impossible = held.filter(state_locked_until__gt=beyond, **self.state_field.among(self.known))
        return [held.filter(state_locked_until__lte=Now()), impossible]

    @cached_property
    def known(self) -> list[str]:
        """The names of all states of this code, and the former names that rows may have."""
        return sorted({*self.graph.states, *self.graph.renames})

    @property
    def shortest_lease(self) -> float:
        """The least seconds of a lease that a row sets by itself, so that a worker can renew it in time."""
        return min(MIN_OF_ROWS, self.settings.LEASE)

    @cached_property
    def longest_lease(self) -> float:
        """The most seconds that a lease may have left."""
        return max([self.settings.LEASE, self.settings.MAX_RUNTIME, *(s.lease or 0 for s in self._with_own_lease)])

    @cached_property
    def _with_own_lease(self) -> list[State]:
        return [state for state in self.automatic if state.lease]
