"""``stator resume``: pauses end, all of a model or those that are named."""

import pytest

from stator.models import Pause
from tests.stator.commands.errands import LABEL, asked, run
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_only_the_pause_of_the_state_and_lookups_that_are_named_ends():
    Errand.stator.pause("new")
    Errand.stator.pause("new", where={"tenant": 3})
    assert asked("resume", LABEL, "--state", "new", "--where", "tenant=3") == {"model": LABEL, "resumed": 1}
    assert [(pause.state, pause.where) for pause in Pause.objects.active()] == [("new", {})]


def test_without_a_state_all_pauses_of_the_model_end():
    for state in ("new", "heir"):
        Errand.stator.pause(state)
    assert run("resume", LABEL) == f"2 pauses of {LABEL} ended.\n"
    assert not Pause.objects.active().exists()
