"""``stator retry``: by key, by state, by condition, with a limit, and of all."""

import getpass

import pytest

from stator.models import Action, History
from tests.stator.commands.errands import LABEL, asked, run
from tests.stator.making import ago, put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_retry_of_named_rows_records_the_user():
    errands = [put(Errand, state_ready=False, state_failures=3, state_next_attempt=ago(-600)) for _ in range(3)]
    named = asked("retry", LABEL, errands[0].pk, errands[1].pk)
    assert named.pop("action") == Action.objects.get().pk
    assert named == {"model": LABEL, "named": 2, "missing": [], "retried": 2}
    assert Errand.stator.ready().count() == 2
    assert set(History.objects.values_list("actor", "reason")) == {(getpass.getuser(), "retried")}
    told = run("retry", LABEL, "--failed")
    assert told.startswith("1 of testapp.Errand is due now.\nIt is not attempted yet: No live worker serves"), told


def test_retry_by_state_condition_limit_and_of_all():
    for number in range(3):
        put(Errand, state_ready=False, state_crashes=number + 1, state_failures=number)
    put(Errand, state="heir", state_ready=False)
    put(Errand, state="done")
    assert asked("retry", LABEL, "--quarantined")["retried"] == 1
    assert asked("retry", LABEL, "--state", "heir")["retried"] == 1
    assert asked("retry", LABEL, "--state", "new", "--limit", "2")["retried"] == 2
    assert asked("retry", LABEL, "--yes")["retried"] == 4
