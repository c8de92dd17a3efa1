"""Models whose tables lack something: which are left out, when they are taken back, and what becomes of their rows."""

import time
from types import SimpleNamespace

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError

from stator.db import suspensions
from stator.db.suspensions import Suspensions
from stator.graph.outcomes import Waiting
from stator.worker import tables as module
from stator.worker.executor import UNFIT, attempt_async, attempt_sync
from stator.worker.recorder import Recorder
from tests.stator.making import claim_all, operations_of, put, raw, row
from tests.stator.worker.fakes import FakeClaim
from tests.stator.worker.lacking import error_of, run, wait_for, without
from tests.testapp.models import Line
from tests.testapp.power import Measure, Transfer

pytestmark = pytest.mark.django_db(transaction=True)


class TestSchema:
    """That a worker leaves a model out and takes it back: tests/faults/test_schema.py."""

    def test_tables_are_read_again_only_when_it_is_time(self, tables, pair, monkeypatch):
        with without(Line, "name"):
            wait_for(tables.examine)
        wait_for(tables.look_again)
        assert tables.left_out == [pair[0]]
        later = time.monotonic() + module.PACE.first
        monkeypatch.setattr(suspensions, "time", SimpleNamespace(monotonic=lambda: later))
        wait_for(tables.look_again)
        assert tables.left_out == []

    def test_database_that_is_away_leaves_no_model_out(self, tables, monkeypatch):
        def away(model, alias):
            raise OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(module, "lack_of", away)
        wait_for(tables.examine)
        assert tables.left_out == []


class TestAttempts:
    def outcome_of(self, state, error):
        def act():
            raise error

        async def act_async():
            raise error

        claim = FakeClaim(operations_of(Line), state, act_async if state == "awaited" else act)
        attempted = async_to_sync(attempt_async)([claim]) if state == "awaited" else attempt_sync([claim])
        ((_, outcome),) = attempted.ended
        return outcome

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_error_about_a_column_that_the_model_lacks_is_not_the_handlers(self, state):
        with without(Line, "name"):
            assert self.outcome_of(state, error_of("SELECT name FROM testapp_line")) == UNFIT

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_error_about_another_name_is(self, state):
        outcome = self.outcome_of(state, error_of())
        assert isinstance(outcome, Waiting)
        assert "absent" in outcome.failure.message

    def test_atomic_attempt_is_released_too(self):
        transfer, operations = put(Transfer), operations_of(Transfer)
        claims = claim_all(operations)
        with without(Transfer, "touched"):
            attempted = attempt_sync(claims)
            assert [outcome for _, outcome in attempted.ended] == [UNFIT]
            operations.record(attempted.ended)
        after = row(transfer)
        assert (after.state, after.state_claim, after.state_attempts, after.state_failures) == ("new", None, 1, 0)


class TestRecords:
    def flush(self, ended):
        async def write():
            recorder = Recorder(run, 100, Suspensions())
            for pair in ended:
                recorder.add(*pair)
            while recorder.came.is_set() or recorder._unwritten:
                await recorder.flush()
            return recorder

        return wait_for(write)

    def attempted(self, count=3):
        for _ in range(count):
            put(Measure)
        return [ended for claim in claim_all(operations_of(Measure)) for ended in attempt_sync([claim]).ended]

    def test_rows_whose_values_have_no_column_are_released(self):
        ended = self.attempted()
        with without(Measure, "label"):
            recorder = self.flush(ended)
        assert recorder.held == {}
        assert (recorder.failed, recorder.lost) == (0, 0)
        rows = raw(Measure).values_list("state", "state_ready", "state_claim", "state_attempts", "state_failures")
        assert set(rows) == {("new", True, None, 1, 0)}

    def test_leases_of_rows_that_cannot_even_be_released_run_out(self, caplog):
        ended = self.attempted()
        with without(Measure, "state_claim"):
            recorder = self.flush(ended)
        assert recorder.held == {}
        assert (recorder.failed, recorder.lost) == (0, 0)
        assert raw(Measure).filter(state="new", state_claim__isnull=False, state_failures=0).count() == 3
        assert caplog.records == []
