"""On MariaDB, generated columns take the place of indexes on expressions and of unique constraints with conditions."""

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from stator.db.generated import complete, in_columns, present_columns
from stator.db.rows import new_token, new_worker_id
from stator.rows.indexes import line_of, own_indexes
from tasks.models import Queue, Task
from tests.stator.making import operations_of, put, raw
from tests.testapp.basic import Step

pytestmark = [pytest.mark.mariadb, pytest.mark.usefixtures("transactional_db")]


def claimed() -> dict[str, object]:
    now = timezone.now()
    return {
        "state_claim": new_token(new_worker_id()), "state_locked_until": now, "state_attempted": now,
        "state_ready": False,
    }  # fmt: skip


def plan_of(rows: models.QuerySet) -> list[tuple[object, ...]]:
    statement, params = rows.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", params)
        return list(cursor.fetchall())


def test_every_index_of_a_managed_model_is_there_after_migrate():
    with connection.cursor() as cursor:
        found = set(connection.introspection.get_constraints(cursor, Step._meta.db_table))
    assert {index.name for index in own_indexes(Step)} <= found


def test_table_that_is_complete_is_left_alone():
    assert complete(Step, "default") == complete(Task, "default") == []


def test_model_that_is_not_managed_is_left_alone():
    assert complete(Queue, "default") == []


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


def test_line_is_sorted_where_a_table_lacks_the_columns():
    put(Step)
    line = raw(Step).order_by(*line_of(Step))
    assert list(in_columns(line, set())) == list(line)


@pytest.mark.parametrize("value", ["a", None])
def test_second_claim_of_an_exclusive_value_is_refused_by_the_database(value):
    queue = Queue.objects.create(name="encode", kind=Queue.Kind.EXCLUSIVE, exclusive_key="title")
    first, second = (raw(Task).create(queue=queue, action="encode", exclusive_value=value) for _ in range(2))
    raw(Task).filter(pk=first.pk).update(**claimed())
    if value is None:
        raw(Task).filter(pk=second.pk).update(**claimed())
    else:
        with pytest.raises(IntegrityError), transaction.atomic():
            raw(Task).filter(pk=second.pk).update(**claimed())
        raw(Task).filter(pk=first.pk).update(state_claim=None, state_locked_until=None)
        assert raw(Task).filter(pk=second.pk).update(**claimed()) == 1
