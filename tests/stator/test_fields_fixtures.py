"""Fixtures: all columns are loaded as they were dumped, into new rows and over existing ones."""

from typing import Any

import pytest
from django.core import serializers
from django.core.management import call_command

from stator.db.interface import new_token
from stator.signals import became_ready
from tests.stator.making import ago, change, put, raw, row
from tests.stator.running import hearing
from tests.testapp.basic import Step
from tests.testapp.keys import Branch, UuidKeyed

pytestmark = pytest.mark.django_db


# Whole seconds, because some formats have no more than milliseconds.
BEFALLEN: dict[str, Any] = {
    "state_ready": False,
    "state_changed": ago(500).replace(microsecond=0),
    "state_attempted": ago(400).replace(microsecond=0),
    "state_locked_until": ago(-60).replace(microsecond=0),
    "state_next_attempt": ago(-600).replace(microsecond=0),
    "state_attempts": 3,
    "state_failures": 2,
    "state_crashes": 1,
    "state_version": 4,
    "state_claim": new_token("0" * 12),
}
# What has become of the row meanwhile; first, there is none.
LATER: list[dict[str, Any]] = [
    {},
    {"state": "last", "state_ready": True, "state_version": 9, "state_claim": None},
    {"state_ready": True, "state_attempts": 0, "state_changed": ago(1)},
]


@pytest.mark.parametrize("form", ["json", "xml"])
@pytest.mark.parametrize("model", [UuidKeyed, Branch])
def test_loaddata_brings_back_what_dumpdata_wrote(model, form, tmp_path):
    original = put(model, state="second", **BEFALLEN)
    path = str(tmp_path / f"rows.{form}")
    models = ["testapp.bigkeyed", "testapp.branch"] if model is Branch else ["testapp.uuidkeyed"]
    call_command("dumpdata", *models, format=form, output=path, verbosity=0)
    for later in LATER:
        if later:
            change(original, **later)
        else:
            raw(model).all().delete()
        call_command("loaddata", path, verbosity=0)
        found = row(original)
        assert {name: getattr(found, name) for name in ("state", *BEFALLEN)} == {"state": "second", **BEFALLEN}


def test_loaded_object_knows_the_state_that_it_brought():
    step = put(Step, state="done")
    [loaded] = serializers.deserialize("json", serializers.serialize("json", [step]))
    change(step, state="new")
    loaded.save()
    loaded.object.state = "failed"
    loaded.object.save()
    assert (row(step).state, row(step).state_version) == ("failed", 1)


def test_workers_are_woken_for_an_object_that_is_loaded_ready_over_one_that_is_not(django_capture_on_commit_callbacks):
    step = put(Step)
    [loaded] = serializers.deserialize("json", serializers.serialize("json", [step]))
    change(step, state_ready=False)
    with hearing(became_ready) as woken, django_capture_on_commit_callbacks(execute=True):
        loaded.save()
    assert [sender for sender, _ in woken] == [Step]
