"""Steps that need databases: repeated until each is reached, and one that is away holds up no other."""

import pytest
from django.db import DatabaseError

from stator.db.rows import TABLE
from stator.db.suspensions import ResumptionPace, Suspensions
from stator.worker import outage as outage_module
from stator.worker.dispatcher import Lane
from stator.worker.outage import reach
from tests.stator.worker.lacking import error_of, wait_for, without
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)


class TestSteps:
    def test_step_is_taken_again_at_once_without_the_model(self, tables, pair, caplog):
        error = error_of()

        async def step():
            if not pair[0].lacking:
                raise error
            return "done"

        with without(Line, "name"):
            assert wait_for(reach, step, Suspensions(), lambda: False, tables) == "done"
        assert [record.getMessage() for record in caplog.records] == ["stator.model_left_out"]

    def test_error_that_no_table_explains_is_raised_after_some_tries(self, tables, monkeypatch):
        monkeypatch.setattr(outage_module, "PACE", ResumptionPace(0.001))
        monkeypatch.setattr(outage_module, "TRIES", 3)
        tries, error = [], error_of("SELECT 1 FROM nowhere")

        async def step():
            tries.append(1)
            raise error

        with pytest.raises(DatabaseError, match="nowhere"):
            wait_for(reach, step, Suspensions(), lambda: False, tables)
        assert len(tries) == 4

    def test_lane_of_a_model_that_is_left_out_wants_nothing_until_it_is_back(self, pair):
        lane = Lane(pair[0], [], False, 1)
        lane.suspect = True
        pair[0].suspended.suspend(TABLE, "table testapp_line lacks column name")
        assert not lane.wanted
        pair[0].suspended.end(TABLE)
        assert lane.wanted
