"""A table without the mixin, the model that it is to become, and the migrations that ``makemigrations`` writes."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, migrations, models
from django.db.migrations.state import ModelState, ProjectState
from django.test.utils import isolate_apps

from stator.graph import StateGraph
from stator.management.autodetector import StateChanges
from stator.models import StateField, StatorModel
from tests.testapp.faults import JobGraph

TABLE = "testapp_trunk"


@contextmanager
def table_to_adopt(
    *further: tuple[str, models.Field], graph: type[StateGraph] = JobGraph
) -> Iterator[type[StatorModel]]:
    """Give the model as it will be, with the mixin; its table has what it had before, and the ``further`` fields."""
    with isolate_apps("tests.testapp"):

        class Trunk(StatorModel):
            label = models.CharField(max_length=100)
            # In the database too: programs of before go on inserting rows.
            state = StateField(graph, db_default="fresh")

            class Meta:
                app_label = "testapp"

        with connection.schema_editor() as editor:
            editor.create_model(before(*further).apps.get_model("testapp", "Trunk"))
        try:
            yield Trunk
        finally:
            execute(f"DROP TABLE {TABLE}")


def before(*further: tuple[str, models.Field]) -> ProjectState:
    """The state of a project whose model has no mixin."""
    fields = [
        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
        ("label", models.CharField(max_length=100)),
        *further,
    ]
    state = ProjectState()
    state.add_model(ModelState("testapp", "Trunk", fields))
    return state


def generated(model: type[StatorModel], state: ProjectState) -> list[migrations.Migration]:
    """The migrations that ``makemigrations`` writes between a state and the model."""
    after = ProjectState()
    after.add_model(ModelState.from_model(model))
    return StateChanges(state, after)._detect_changes().get("testapp", [])  # type: ignore[attr-defined]


def apply(found: list[migrations.Migration], state: ProjectState) -> ProjectState:
    """Apply migrations as ``migrate`` does; return the state after them."""
    for migration in found:
        with connection.schema_editor(atomic=migration.atomic) as editor:
            state = migration.apply(state, editor)
    return state


def unapply(found: list[migrations.Migration], state: ProjectState) -> None:
    """Reverse migrations; ``state`` is the one before them."""
    for migration in reversed(found):
        with connection.schema_editor(atomic=migration.atomic) as editor:
            migration.unapply(state.clone(), editor)


def execute(statement: str) -> object:
    """The first value that a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def columns_and_indexes() -> tuple[set[str], set[str]]:
    """The names of the table's columns, and of the mixin's indexes."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_table_description(cursor, TABLE)
        constraints = connection.introspection.get_constraints(cursor, TABLE)
    return {column.name for column in found}, {name for name in constraints if name.startswith("st_")}
