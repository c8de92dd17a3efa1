"""The indexes that come with the mixin: on every managed table, once, under names of their own."""

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from stator.models import StatorModel
from stator.rows.dates import deadlines_of, starts_of
from stator.rows.indexes import own_indexes
from stator.rows.meta import options_of
from stator.rows.state_column import StateField
from tests.testapp.keys import BigProxy, Branch, OddTable
from tests.testapp.models import Line, LineGraph


def prefixes(model):
    return sorted("_".join(index.name.split("_")[:2]) for index in own_indexes(model))


def test_every_managed_table_has_each_index_once():
    for model in StatorModel.subclasses:
        by_age = ["st_age"] if options_of(model).priority else []
        dated = ["st_at"] * len(deadlines_of(model))
        started = ["st_try"] * len(starts_of(model))
        own = [*by_age, *dated, "st_crash", "st_fail", "st_lease", "st_ready", "st_rest", *started]
        assert prefixes(model) == own, model
        assert {index.name for index in own_indexes(model)} <= {index.name for index in model._meta.indexes}


def test_names_differ_between_tables_and_fit_every_database_and_children_have_none_of_their_own():
    names = [index.name for model in StatorModel.subclasses for index in own_indexes(model)]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 30
    assert all(name.isidentifier() for name in names)
    of_children = [index.name for model in (BigProxy, Branch) for index in model._meta.indexes]
    assert not [name for name in of_children if name.startswith("st_")]


@isolate_apps("tests.testapp")
def test_indexes_of_the_model_itself_are_kept():
    class Indexed(StatorModel):
        state = StateField(LineGraph)
        name = models.CharField(max_length=5)

        class Meta:
            app_label = "testapp"
            indexes = [models.Index(fields=["name"], name="by_name")]

    assert "by_name" in {index.name for index in Indexed._meta.indexes}
    assert len(Indexed._meta.indexes) == 6


@pytest.mark.django_db
@pytest.mark.parametrize("model", [Line, OddTable])
def test_migrations_make_them(model):
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    assert {index.name for index in own_indexes(model)} <= set(found)
