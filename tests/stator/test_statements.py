"""Statements that are compiled once, and what they are given."""

from uuid import UUID

import pytest
from django.db import connection
from django.db.models import CharField, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat

from stator.statements import MAX_CACHED, Parameter, Statement, StatementCache, selecting, updating
from tasks.models import Run, Task
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db

NAME, TOKEN = Parameter("name", CharField()), Parameter("token", Run._meta.get_field("token"))


def rows_of(statement, **values):
    with connection.cursor() as cursor:
        cursor.execute(statement.text, statement.bind(connection, values))
        return list(cursor.fetchall()) if cursor.description else cursor.rowcount


@pytest.fixture
def rows():
    queue = make_queue()
    for action in "abc":
        queue.publish(action, key=f"{action}-key", priority=7)
    return QuerySet(Task, using="default")


def test_one_statement_is_sent_with_many_values(rows):
    statement = selecting(rows.filter(action=NAME).values_list("key"))
    assert [rows_of(statement, name=name) for name in "ab"] == [[("a-key",)], [("b-key",)]]
    # One that finds nothing is compiled all the same.
    assert rows_of(selecting(rows.filter(pk__in=[]).values_list("pk"))) == []


def test_parameters_are_in_the_order_of_the_text(rows):
    both = Q(action=NAME) & Q(key=Concat(NAME, Value("-key"), output_field=TextField())) & Q(priority=7)
    statement = selecting(rows.filter(both).annotate(told=Concat(Value("<"), NAME)).values_list("told", "key"))
    assert rows_of(statement, name="c") == [("<c", "c-key")]


def test_value_is_converted_as_its_field_does(rows):
    token = UUID(int=7)
    assert updating(rows.filter(action="a"), {"state_claim": TOKEN}).bind(connection, {"token": token}) == (
        updating(rows.filter(action="a"), {"state_claim": token}).bind(connection, {})
    )
    data = Parameter("data", Task._meta.get_field("data"))
    assert rows_of(updating(rows.filter(action=NAME), {"data": data}), name="a", data={"n": [1]}) == 1
    assert rows_of(updating(rows.filter(action=NAME), {"data": data}), name="b", data=None) == 1
    assert dict(Task.objects.values_list("action", "data")) == {"a": {"n": [1]}, "b": None, "c": None}
    assert Task.objects.filter(data__isnull=True).count() == 2


def test_statement_of_a_shape_is_built_once_and_their_number_is_bounded():
    kept, built = StatementCache(), []

    def make():
        built.append(1)
        return Statement(str(len(built)))

    assert kept.get(("a", 1), make) is kept.get(("a", 1), make)
    assert kept.get(("a", 2), make) == Statement("2")
    for number in range(MAX_CACHED):
        kept.get(number, make)
    assert len(kept._statements) <= MAX_CACHED
