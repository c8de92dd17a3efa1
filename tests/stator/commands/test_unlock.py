"""``stator unlock``: claims of named objects end, and what may still run is named."""

import pytest

from stator.models import Action, Pause
from tests.stator.commands.errands import LABEL, asked, held, run
from tests.stator.making import put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_unlock_ends_claims_of_named_rows():
    errand, other = put(Errand, **held()), put(Errand, **held())
    unlocked = asked("unlock", LABEL, errand.pk)
    assert unlocked.pop("may_run")[0].startswith(f"{errand.pk}: attempt 0, which began")
    assert unlocked.pop("action") == Action.objects.get().pk
    assert unlocked == {"model": LABEL, "named": 1, "missing": [], "unlocked": 1}
    assert set(Errand.stator.leased()) == {other}
    assert run("unlock", LABEL, errand.pk) == "0 of 1 unlocked: it is not claimed.\n"
    told = run("unlock", LABEL, errand.pk, other.pk)
    assert told.startswith(f"1 of 2 unlocked: the other is not claimed.\nIt may still run: {other.pk}: attempt 0"), told


def test_unlock_tells_what_may_still_run_and_pauses_if_asked():
    errand = put(Errand, **held())
    told = run("unlock", LABEL, errand.pk, "--pause", "--reason", "runs wild")
    assert "1 of 1 unlocked and paused." in told
    assert f"It may still run: {errand.pk}: attempt" in told
    assert Pause.objects.active().get().where == {"pk__in": [errand.pk]}
    assert not Errand.stator.ready().exists()
