"""``stator statements``: what is sent for a model, and that nothing is changed by asking."""

import pytest

from tests.stator.commands.errands import asked
from tests.stator.making import LEASED, put, row
from tests.testapp.power import Ride
from tests.testapp.stepped import KeptPurchase

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("model", [Ride, KeptPurchase])
def test_each_verb_has_its_statements_and_no_row_changes(model):
    held = put(model, **LEASED)
    ready = put(model)
    before = [row(each).__dict__ | {"_state": None} for each in (held, ready)]
    verbs = {each["verb"] for each in asked("statements", model._meta.label)}
    assert {"poll", "mark ready", "claim", "renew", "reap"} <= verbs
    assert any(verb.startswith("record ") for verb in verbs)
    assert [row(each).__dict__ | {"_state": None} for each in (held, ready)] == before
