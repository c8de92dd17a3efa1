"""Migration operations that fill the columns of the mixin from what a table has.

Migrations name them in ``stator.adoption``.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F, Model, Q, QuerySet
from django.db.models.functions import Coalesce

from stator.extensions.migrating.operations import change_rows
from stator.logs import progress
from stator.rows.clock import Now
from stator.rows.meta import field_of
from stator.rows.state_column import USUAL_NAME
from stator.table_operations import TableOperation

# What is stored for a state.
Stored = TypeVar("Stored", bound=str | int)


class KeepDueTimes(TableOperation):
    """Write due times of rows that have only the time of their last attempt: ``intervals`` seconds after it, by state.

    Use it for tables of Takahe's Stator from before ``state_next_attempt``. Rows are written in batches, each
    committed. Reversing the migration clears the ready mark of rows that wait, and gives them a time of their last
    attempt.
    """

    __module__ = "stator.adoption"

    def __init__(self, model_name: str, intervals: Mapping[Stored, float], field: str = USUAL_NAME) -> None:
        super().__init__(model_name)
        self.intervals = dict(intervals)
        self.field = field

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Write the due times of rows that wait."""
        for state, seconds in self.intervals.items():
            interval = timedelta(seconds=seconds)
            late = {self.field: state, "state_attempted__gt": Now() - interval}
            waiting = _rows(editor, model).filter(state_next_attempt=None, **late)
            change_rows(waiting, {"state_next_attempt": F("state_attempted") + interval})

    def backwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Have rows wait as the former package did."""
        waiting = _rows(editor, model).filter(state_next_attempt__gt=Now(), state_ready=True)
        change_rows(waiting, {"state_ready": False, "state_attempted": Coalesce("state_attempted", "state_changed")})

    def describe(self) -> str:
        """Return a description for people."""
        return f"Keep the due times of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_due_times"


class FillStates(TableOperation):
    """Give rows that have just got the initial state the first state of ``states`` whose condition they meet.

    ``makemigrations`` writes this operation for ``StatorMeta.adopts``. ``states`` maps what is stored for a state to a
    condition on the columns of the table; ``at_rest`` has those that workers do not attempt. A row that meets none, or
    that a worker has claimed already, stays as it is. No other column of the project is changed, here or when the
    migration is reversed. Each batch of 1,000 rows is committed. When all databases are migrated, the operation can be
    removed; ``squashmigrations`` does so.
    """

    __module__ = "stator.adoption"

    def __init__(
        self,
        model_name: str,
        states: Mapping[Stored, Q],
        at_rest: Sequence[str | int] = (),
        field: str = USUAL_NAME,
        elidable: bool = False,
    ) -> None:
        super().__init__(model_name)
        vars(self)["elidable"] = elidable
        self.states = dict(states)
        self.at_rest = list(at_rest)
        self.field = field

    def deconstruct(self) -> tuple[str, list[object], dict[str, object]]:
        name, args, kwargs = super().deconstruct()
        # Only once it is in a file: makemigrations itself leaves out operations that can be elided.
        return name, args, {**kwargs, "elidable": True}

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Write the states; show on a terminal how many rows were looked at."""
        initial = field_of(model, self.field).get_default()
        rows = _rows(editor, model).filter(**{self.field: initial, "state_claim": None})
        for state, condition in self.states.items():
            if state == initial:
                # These stay, whatever a later condition says.
                rows = rows.exclude(condition)
                continue
            changes: dict[str, object] = {self.field: state, "state_version": F("state_version") + 1}
            rests = {"state_ready": False} if state in self.at_rest else {}
            with progress(f"rows of {model._meta.db_table} compared with {state}") as shown:
                change_rows(rows.filter(condition), changes | rests, shown)

    def describe(self) -> str:
        """Return a description for people."""
        return f"Fill the states of {self.model_name} from its other columns"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_states"


def _rows(editor: BaseDatabaseSchemaEditor, model: type[Model]) -> QuerySet[Model]:
    return QuerySet(model, using=editor.connection.alias)
