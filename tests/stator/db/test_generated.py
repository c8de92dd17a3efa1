"""On MariaDB, generated columns take the place of indexes on expressions and of unique constraints with conditions."""

import pytest
from django.db import connection, models

from stator.db.generated import OURS, complete, in_columns, present_columns, release
from stator.rows.indexes import line_of, own_indexes
from tests.stator.making import claim_all, operations_of, put, raw
from tests.testapp.basic import Step

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("transactional_db")]


def plan_of(rows: models.QuerySet) -> list[tuple[object, ...]]:
    statement, params = rows.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {statement}", params)
        return list(cursor.fetchall())


def test_every_index_of_a_managed_model_is_there_after_migrate():
    with connection.cursor() as cursor:
        found = set(connection.introspection.get_constraints(cursor, Step._meta.db_table))
    assert {index.name for index in own_indexes(Step)} <= found


def test_columns_are_not_seen_by_a_project_that_selects_all():
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {Step._meta.db_table} LIMIT 0")
        seen = {column[0] for column in cursor.description}
    assert seen == {field.column for field in Step._meta.concrete_fields}
    assert seen < present_columns(Step, "default")


def test_line_is_read_from_the_index_without_a_sort():
    raw(Step).bulk_create(Step() for _ in range(500))
    raw(Step).filter(pk__gt=raw(Step).order_by("pk")[400].pk).update(state_ready=False)
    operations = operations_of(Step)
    line = operations.claimable(list(operations.graph.automatic_states)).order_by(*line_of(Step))
    assert "filesort" in str(plan_of(line[:10]))
    rows = in_columns(line, present_columns(Step, "default"))
    assert "filesort" not in str(plan_of(rows[:10]))
    assert list(rows[:10]) == list(line[:10])


def test_row_that_a_program_inserts_without_our_columns_is_in_the_line():
    """MySQL fills in the defaults of columns only after it has first computed others from them."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO testapp_step (state, name) VALUES ('new', '')")
        cursor.execute(f"SELECT {column_of_line()} = state_changed FROM testapp_step")
        assert cursor.fetchall() == ((1,),)


def column_of_line() -> str:
    with connection.cursor() as cursor:
        cursor.execute(OURS, [Step._meta.db_table])
        [(name,)] = cursor.fetchall()
    return name


def test_index_over_the_column_takes_the_place_of_one_on_the_expression():
    """MySQL has such indexes, but a sort by the column does not use them."""
    [ready] = [index for index in Step._meta.indexes if index.name.startswith("st_ready")]
    column = column_of_line()
    try:
        release(connection, Step._meta.db_table)
        with connection.schema_editor() as editor:
            editor.remove_index(Step, ready)
            editor.add_index(Step, ready)
    finally:
        complete(Step, "default")
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Step._meta.db_table)
    assert found[ready.name]["columns"] == ["state_ready", column, "id"]


def test_line_is_sorted_where_a_table_lacks_the_columns():
    put(Step)
    line = raw(Step).order_by(*line_of(Step))
    assert list(in_columns(line, set())) == list(line)


def test_migration_that_changes_columns_begins_without_the_generated_ones():
    with connection.cursor() as cursor:
        cursor.execute("SELECT column_name FROM information_schema.columns WHERE column_comment = 'stator'")
        assert cursor.fetchone()
    try:
        assert len(release(connection, Step._meta.db_table)) == 1
        assert present_columns_now() == {field.column for field in Step._meta.concrete_fields}
    finally:
        assert len(complete(Step, "default")) == 1
    assert complete(Step, "default") == []


def test_claims_go_on_while_a_migration_has_dropped_the_columns():
    operations = operations_of(Step)
    first = put(Step)
    assert [claim.pk for claim in claim_all(operations)] == [first.pk]
    line = column_of_line()
    second = put(Step)
    try:
        release(connection, Step._meta.db_table)
        assert [claim.pk for claim in claim_all(operations)] == [second.pk]
        assert line not in present_columns(Step, "default")
    finally:
        complete(Step, "default")
    assert line in present_columns(Step, "default")


def present_columns_now() -> set[str]:
    with connection.cursor() as cursor:
        return {column.name for column in connection.introspection.get_table_description(cursor, Step._meta.db_table)}
