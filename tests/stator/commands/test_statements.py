"""``stator statements``: what is sent for a model, and that nothing is changed by asking."""

import pytest

from tests.stator.commands.errands import asked, refused
from tests.stator.making import LEASED, put, row
from tests.testapp.basic import Step
from tests.testapp.fairness import Enquiry, Ticket
from tests.testapp.power import Ride
from tests.testapp.stepped import KeptPurchase
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("model", [Step, Ticket, Enquiry, Ride, Rollout, KeptPurchase])
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
