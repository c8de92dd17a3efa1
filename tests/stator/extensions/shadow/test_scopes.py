"""Shadow writes down what it sees where the rows are: in their database, and in their schema."""

import pytest

from stator.extensions.schemas import resting
from stator.extensions.shadow.models import ShadowLine
from stator.runner import StatorRunner
from stator.schemas import in_schema
from tests.commanding import asked
from tests.stator.making import ago, put, raw, schemas_with
from tests.testapp.shadowed import Flyer

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

SCHEMAS = ("acme", "bolt")


def work(**given):
    StatorRunner([Flyer], until_idle=True, **given).run()


def kept(using="default"):
    return [(line.source, line.moved_to) for line in ShadowLine.objects.using(using).order_by("pk")]


def test_lines_are_in_the_database_of_the_rows():
    put(Flyer, "other", state="queued", state_changed=ago(90))
    work(database="other")
    raw(Flyer, "other").update(state="sent")
    work(database="other")
    assert kept("other") == [("queued", "sent"), ("sent", "")]
    assert kept() == []
    assert len(asked("stator", "shadow", "testapp.Flyer", "--database", "other")["as_here"]) == 1


@pytest.mark.postgresql
@pytest.mark.parametrize("few", [5, 1], ids=["all schemas are served", "schemas without work rest"])
def test_lines_are_in_the_schema_of_the_rows(settings, monkeypatch, few):
    monkeypatch.setattr(resting, "FEW_SCOPES", few)
    settings.STATOR = {"SCHEMAS": SCHEMAS}
    with schemas_with(Flyer, SCHEMAS):
        for schema in SCHEMAS:
            with in_schema(schema):
                put(Flyer, state="queued", state_changed=ago(90))
        work()
        with in_schema("bolt"):
            raw(Flyer).update(state="void")
        work()
        for schema, lines in (("acme", [("queued", "")]), ("bolt", [("queued", "void")])):
            with in_schema(schema):
                assert kept() == lines
            told = asked("stator", "shadow", "testapp.Flyer", "--schema", schema)
            assert (len(told["not_there"]), len(told["as_here"])) == ((1, 0) if schema == "acme" else (0, 1))
        assert kept() == []
