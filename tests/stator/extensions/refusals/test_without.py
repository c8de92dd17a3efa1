"""Without the extension, what the database refuses is safe, only coarser: nothing is done together with such a row."""

import pytest

from stator.db import chores
from stator.db.conditions import Conditions
from stator.extensions.refusals.condition import NotRefused
from tests.stator.extensions.refusals.test_refusals import refused
from tests.stator.making import automatic, put, raw
from tests.testapp.basic import Step

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def without(make):
    operations = make()
    bound = [each for each in operations.conditions._bound if not isinstance(each, NotRefused)]
    operations.conditions = Conditions(bound)
    return operations


def test_claim_takes_nothing_until_no_row_is_refused(without):
    bad, *_ = [put(Step) for _ in range(3)]
    with refused(Step, bad.pk):
        assert without.claim(automatic(without), 9) == []
        assert not raw(Step).filter(state_claim__isnull=False).exists()
    assert len(without.claim(automatic(without), 9)) == 3


def test_chore_does_nothing_until_no_row_is_refused(without, caplog):
    bad, *_ = [put(Step, state_ready=False) for _ in range(3)]
    with refused(Step, bad.pk):
        assert chores.mark_ready(without, 9) == 0
        assert [record.message for record in caplog.records if record.name == "stator.worker"] == [
            "stator.chore_refused"
        ]
    assert chores.mark_ready(without, 9) == 3
