"""``stator statements``: what is sent for a model, and that nothing is changed by asking."""

from pathlib import Path

import django
import pytest
from django.db import connection

from tests.stator.commands.errands import asked, refused, run
from tests.stator.making import LEASED, put, row
from tests.testapp.basic import Step
from tests.testapp.fairness import Enquiry, Ticket
from tests.testapp.power import Ride
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.django_db(transaction=True)

GOLDEN = Path(__file__).with_name("statements.sql")


@pytest.mark.skipif(
    connection.vendor != "postgresql" or django.VERSION[:2] != (5, 2),
    reason="the file has those of postgresql, as Django 5.2 compiles them",
)
def test_statements_are_those_of_the_file():
    """After a change that is meant, delete the file and run this once: its diff is for the review."""
    found = run("statements", "testapp.Step")
    if not GOLDEN.exists():
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


@pytest.mark.parametrize("model", [Step, Ticket, Enquiry, Ride, Rollout])
def test_each_verb_has_its_statements_and_no_row_changes(model):
    held = put(model, **LEASED)
    ready = put(model)
    before = [row(each).__dict__ | {"_state": None} for each in (held, ready)]
    verbs = {each["verb"] for each in asked("statements", model._meta.label)}
    assert {"poll", "mark ready", "claim", "renew", "reap"} <= verbs
    assert any(verb.startswith("record ") for verb in verbs)
    assert [row(each).__dict__ | {"_state": None} for each in (held, ready)] == before


def test_model_that_is_not_managed_is_refused_in_one_line():
    assert "is not a model" in refused("statements", "testapp.Nothing")
