"""What the conditions for many rows depend on, read in at most four statements."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Exists, Model, OuterRef, Q, QuerySet

from stator.conf import Settings, load_settings
from stator.extensions.related.watches import watches_of
from stator.graph.states import State
from stator.rows.clock import Now
from stator.rows.columns import parked
from stator.rows.dates import not_yet
from stator.rows.meta import graph_of
from stator.rows.pauses import Pauses, read_pauses
from stator.rows.state_column import state_field
from stator.rows.versions import Fleet
from stator.scopes import are_apart

NO_ROWS = Q(pk__in=[])


@dataclass(frozen=True, slots=True)
class Many:
    """All rows of a model, with its pauses, the states at their limit, and whether a live worker serves it.

    ``newer``: the states that live workers know and this code does not.
    """

    model: type[Model]
    using: str
    settings: Settings
    pauses: Pauses
    full: list[str]
    served: bool
    newer: list[str]

    @classmethod
    def of(cls, model: type[Model], using: str) -> "Many":
        """Return the rows of a model that has the framework's columns itself."""
        label = model._meta.label_lower
        pauses = Pauses.of(label, read_pauses(using))
        fleet = Fleet.of(using)
        served = any(worker.serves(label) for worker in fleet.workers)
        newer = sorted(set(fleet.knowing(model)).difference(graph_of(model).renames))
        return cls(model, using, load_settings(), pauses, _full_states(model, using), served, newer)

    @property
    def rows(self) -> QuerySet[Model]:
        """The rows, whatever the default manager of the model leaves out."""
        return QuerySet(self.model, using=self.using)

    def among(self, states: Iterable[State | str]) -> Q:
        """Return a filter for rows in some states."""
        return Q(**state_field(self.model).among(sorted(states, key=str)))

    @property
    def unmanaged(self) -> Q:
        """Rows without a state."""
        field = state_field(self.model)
        return Q(**{field.name: None}) if field.null else NO_ROWS

    @property
    def lost(self) -> Q:
        """Rows in states that this code does not know."""
        lost = ~self.among(graph_of(self.model).states)
        return lost & ~self.unmanaged if state_field(self.model).null else lost

    @property
    def taking_events(self) -> list[State]:
        """The states whose objects wait for events."""
        return [state for state in graph_of(self.model).states.values() if state.events]

    @property
    def awaiting_related(self) -> list[str]:
        """The states whose objects move with related objects."""
        return sorted({watch.state.name for watch in watches_of(self.model)})

    @property
    def automatic(self) -> Q:
        """Rows that workers attempt."""
        return self.among(graph_of(self.model).automatic_states)

    @property
    def paused(self) -> Q:
        """Rows that a pause holds; a pause of a state that workers do not attempt holds none."""
        states = graph_of(self.model).automatic_states
        held = self.among(states.difference(self.pauses.running(states)))
        if partial := self.pauses.held(self.model, states):
            # In a subquery, so that a join does not count a row twice. Over several nodes, a pause has no joins.
            apart = are_apart(self.model, self.using)
            held |= partial if apart else Q(Exists(self.rows.filter(partial, pk=OuterRef("pk"))))
        return held

    @property
    def waiting(self) -> Q:
        """Rows with a due time in the future, also by a date of theirs, that are not parked."""
        return (Q(state_next_attempt__gt=Now()) | not_yet(self.model, Now())) & ~parked()


def _full_states(model: type[Model], using: str) -> list[str]:
    """Return the states whose ``concurrency`` limit is reached."""
    limits = {state.name: state.concurrency for state in graph_of(model).automatic_states if state.concurrency}
    if not limits:
        return []
    rows: QuerySet[Model] = QuerySet(model, using=using)
    field = state_field(model)
    held = rows.filter(state_claim__isnull=False, **field.among(limits))
    claimed = held.order_by().values_list(field.name).annotate(Count("pk"))
    return [name for value, count in claimed if count >= limits[name := field.name_of(value)]]
