"""Checks of tables: columns, indexes, options, and rows in unknown states."""

from contextlib import contextmanager

import pytest
from django.db import connection

from stator.checks.databases import check_primary
from stator.extensions.partitions import doctor, upkeep
from stator.extensions.problems.commands.doctor import tables
from stator.models import History
from stator.rows.indexes import own_indexes
from stator.worker.startup import Unusable, check_database
from tests.stator.commands.doctor.examining import examined
from tests.stator.commands.errands import asked
from tests.stator.dividing import divided, execute, names
from tests.stator.making import ago, change, put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_unknown_states_are_an_error(crew_of_all):
    change(put(Errand), state="mislaid")
    code, found = examined()
    assert (code, found["states"]["level"]) == (1, "fail")
    assert "mislaid" in found["states"]["message"]


def test_missing_index_is_a_warning():
    # On MariaDB, Django neither adds nor removes one with expressions.
    index = next(index for index in own_indexes(Errand) if not index.contains_expressions)
    with connection.schema_editor() as editor:
        editor.remove_index(Errand, index)
    try:
        finding = tables.indexes("default", [Errand])
    finally:
        with connection.schema_editor() as editor:
            editor.add_index(Errand, index)
    assert (finding.level, finding.sentence) == ("warning", f"missing or invalid: {index.name}")
    assert tables.indexes("default", [Errand]).level == "ok"


@pytest.mark.needs("pauses")
def test_missing_table_of_the_framework_ends_the_examination():
    with altered("TABLE stator_pause RENAME TO lost", "TABLE lost RENAME TO stator_pause"):
        code, found = examined("--database", "default")
    assert (code, list(found)) == (1, ["database"])
    assert found["database"]["message"] == "database 'default' has no table stator_pause of stator.Pause"
    assert found["database"]["remedy"] == "run manage.py migrate"


@pytest.mark.parametrize(
    ("column", "remedy"),
    [("state_crashes", "run manage.py makemigrations and migrate"), ("name", "run manage.py migrate")],
)
def test_missing_column_is_named_and_other_models_are_looked_at(crew_of_all, calm, column, remedy):
    put(Errand)
    change = "TABLE testapp_errand RENAME COLUMN {} TO {}"
    # What leaves a model out is no want of workers.
    crew_of_all.models.remove("testapp.errand")
    crew_of_all.save()
    with altered(change.format(column, "lost"), change.format("lost", column)):
        code, found = examined("--database", "default")
    lacks = f"table testapp_errand of testapp.Errand in database 'default' lacks column {column}"
    assert code == 1
    assert (found["database"]["message"], found["database"]["remedy"]) == (lacks, remedy)
    assert {finding["level"] for name, finding in found.items() if name != "database"} == {"ok"}, found


@contextmanager
def altered(there, back):
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER {there}")
        try:
            yield
        finally:
            cursor.execute(f"ALTER {back}")


@pytest.mark.sqlite
def test_sqlite_as_it_comes_is_a_warning(crew_of_all, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    finding = examined()[1]["sqlite"]
    assert finding["level"] == "warn"
    assert "opened without transaction_mode IMMEDIATE and journal_mode WAL" in finding["message"]
    assert "PRAGMA journal_mode=WAL" in finding["remedy"]


# PostgreSQL


@pytest.mark.postgresql
def test_replica_is_refused():
    """One that says of itself what a replica says; a real one is refused in ``faults/test_failover.py``."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
        cursor.execute("SET search_path = public, pg_catalog")
        try:
            code, found = examined("--database", "default")
            [check] = check_primary([Errand], "default")
            with pytest.raises(Unusable, match="is a read replica"):
                check_database([Errand])
        finally:
            cursor.execute("SET search_path = DEFAULT")
            cursor.execute("DROP FUNCTION public.pg_is_in_recovery()")
    assert (code, list(found)) == (1, ["database"])
    assert "is a read replica" in found["database"]["message"]
    assert check.id == "stator.E403"
    assert check.msg == "Database 'default' is a read replica (in recovery), so workers cannot serve 1 model."


@pytest.mark.postgresql
def test_invalid_index_is_a_warning():
    """A failed CREATE INDEX CONCURRENTLY leaves an invalid index."""
    name = own_indexes(Errand)[0].name
    change_it = "UPDATE pg_index SET indisvalid = %s WHERE indexrelid = %s::regclass"
    with connection.cursor() as cursor:
        cursor.execute(change_it, [False, name])
        try:
            finding = tables.indexes("default", [Errand])
        finally:
            cursor.execute(change_it, [True, name])
    assert (finding.level, finding.sentence) == ("warning", f"missing or invalid: {name}")


@pytest.mark.postgresql
def test_missing_partitions_are_a_warning_and_prune_makes_them(crew_of_all, monkeypatch):
    monkeypatch.setattr(upkeep, "WAIT", 30.0)
    with divided("stator.History", "month"):
        assert [finding.level for finding in doctor.partitions("default", [])] == ["ok"]
        newest = max(name for name in names(History) if name.removeprefix("stator_history_").isdigit())
        execute(f"DROP TABLE {newest}")
        code, found = examined("--strict")
        assert (code, found["partitions"]["level"]) == (1, "warn")
        assert "1 partitions of stator_history are missing" in found["partitions"]["message"]
        assert asked("prune")["partitions"] == {"default": 1}
        assert newest in names(History)
        History.objects.create(model_label="x", object_pk="1", version=1, source="a", at=ago(-400 * 86400))
        [finding] = doctor.partitions("default", [])
    assert (finding.level, "stator_history_default has rows" in finding.sentence) == ("ok", True)
