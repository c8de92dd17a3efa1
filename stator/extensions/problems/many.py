"""What the conditions for many rows depend on, read in at most two statements."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Model, Q, QuerySet

from stator.conf import Settings, load_settings
from stator.graph.states import State
from stator.rows.clock import Now
from stator.rows.dates import not_yet
from stator.rows.due_times import parked
from stator.rows.meta import graph_of
from stator.rows.readings import read
from stator.rows.state_column import state_field
from stator.rows.workers import GRAPHS, are_shown, live_workers

NO_ROWS = Q(pk__in=[])


@dataclass(frozen=True, slots=True)
class Many:
    """All rows of a model, and whether a live worker serves it.

    ``newer``: the states that live workers know and this code does not.
    """

    model: type[Model]
    using: str
    settings: Settings
    served: bool
    newer: list[str]

    @classmethod
    def of(cls, model: type[Model], using: str) -> "Many":
        """Return the rows of a model that has the framework's columns itself."""
        label = model._meta.label_lower
        live = live_workers(using, graphs=GRAPHS)
        fleet = read("fleet", using, live, otherwise=None)
        served = not are_shown() or any(worker.serves(label) for worker in live)
        newer = sorted(set(fleet.knowing(model)).difference(graph_of(model).renames)) if fleet else []
        return cls(model, using, load_settings(), served, newer)

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
    def automatic(self) -> Q:
        """Rows that workers attempt."""
        return self.among(graph_of(self.model).automatic_states)

    @property
    def left(self) -> Q:
        """Rows in states that are left to other code for now."""
        return self.among(state_field(self.model).left)

    @property
    def waiting(self) -> Q:
        """Rows with a due time in the future, also by a date of theirs, that are not parked."""
        return (Q(state_next_attempt__gt=Now()) | not_yet(self.model, Now())) & ~parked()
