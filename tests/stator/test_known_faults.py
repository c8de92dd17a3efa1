"""Each fault of the original has a test here under its name; most are one case of a suite that tries more."""

import asyncio
import threading

import pytest
from django.db import transaction

from stator.db import chores
from stator.db.rows import Crashes
from stator.graph.outcomes import Moved
from stator.models import Report, Stats
from stator.runner import StatorRunner
from tests.processes import wait_until
from tests.stator.making import (
    ago,
    at_once,
    automatic,
    change,
    claim_all,
    expire,
    locked_elsewhere,
    operations_of,
    put,
    raw,
    row,
)
from tests.testapp.basic import Deed, DeedGraph, Step, StepGraph
from tests.testapp.models import Line, SyncLine

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def deeds(monkeypatch):
    made = {}
    monkeypatch.setattr(DeedGraph, "deeds", made)
    return made


def work(*models):
    return StatorRunner(list(models), until_idle=True).run()


@pytest.mark.postgresql
def test_claims_without_skip_locked_wait_on_each_other():
    """A claim passes over a locked row; would it wait, this test would not end."""
    # SQLite locks no single rows.
    held, free = put(Step, state_changed=ago(9)), put(Step)
    with locked_elsewhere(held):
        assert [claim.pk for claim in claim_all(operations_of(Step))] == [free.pk]


def test_no_claim_order_so_rows_starve():
    """Rows that keep coming do not keep an older one from its turn."""
    operations = operations_of(Step)
    old = put(Step, state_changed=ago(1000))
    for _ in range(20):
        put(Step)
    assert claim_all(operations, 5)[0].pk == old.pk


def test_no_owner_or_token_so_a_late_worker_overwrites_a_newer_result():
    late, other, step = operations_of(Step), operations_of(Step), put(Step)
    (old,) = claim_all(late)
    expire(step)
    other.reap(10)
    (new,) = other.claim(automatic(other), 1, crashes=Crashes.FEW)
    other.record([(new, Moved(StepGraph.slow))])
    assert late.record([(old, Moved(StepGraph.done))]).lost == [old]
    assert row(step).state == "slow"


def test_a_manual_move_during_a_handler_is_lost(deeds):
    begun, gate = threading.Event(), threading.Event()

    def slow(instance):
        begun.set()
        gate.wait(20)
        return "done"

    def move():
        begun.wait(20)
        with transaction.atomic():
            Deed.objects.get().transition_perform("awaited", actor="eve")
            # Not due: the worker would attempt it again.
            raw(Deed).update(state_ready=False, state_next_attempt=ago(-600))
        gate.set()

    deeds["slow"] = slow
    Deed.objects.create(deed="slow")
    summary, _ = at_once(lambda: work(Deed), move)
    # The worker's move is refused; no lease was lost.
    assert (summary.moved, summary.failed, summary.lost) == ({}, 0, 0)
    assert (raw(Deed).get().state, raw(Deed).get().state_version) == ("awaited", 1)


def test_returning_an_undeclared_state_freezes_the_row(deeds):
    deeds["astray"] = lambda instance: "nowhere"
    deed = Deed.objects.create(deed="astray")
    assert work(Deed).failed == 1
    found = row(deed)
    assert (found.state_claim, found.state_locked_until, found.state_failures) == (None, None, 1)
    assert found.state_next_attempt is not None
    assert Report.objects.get().error == "stator.exceptions.InvalidTransition"


def test_no_attempts_back_off_or_stored_errors(deeds):
    def fail(instance):
        raise ValueError("every time")

    deeds["fail"] = fail
    deed = Deed.objects.create(deed="fail")
    for number in (1, 2, 3):
        work(Deed)
        found = row(deed)
        assert (found.state_attempts, found.state_failures) == (number, number)
        assert (found.state_next_attempt - found.state_attempted).total_seconds() > 25
        change(deed, state_next_attempt=ago(1))
    report = Report.objects.get()
    assert (report.message, report.times) == ("every time", 3)
    assert "in fail" in report.traceback


def test_timeouts_never_fire_for_external_states():
    step = put(Step, state="outside", state_changed=ago(7201))
    work(Step)
    assert row(step).state == "failed"


def test_the_first_busy_model_starves_the_others(monkeypatch):
    """Two attempts at once, dozens of rows of the first model: the only row of the second comes within a few."""
    order = []

    async def handle(instance):
        order.append("busy")
        await asyncio.sleep(0)
        return "second"

    monkeypatch.setattr(Line.state_graph, "handle_first", handle)
    monkeypatch.setattr(SyncLine.state_graph, "handle_first", lambda instance: order.append("other") or "last")
    for number in range(60):
        put(Line, name=str(number), state_changed=ago(1000))
    put(SyncLine)
    StatorRunner([Line, SyncLine], concurrency=2, until_idle=True).run()
    assert order.count("busy") == 60
    assert order.index("other") < 20


def test_delete_after_deletes_leased_rows():
    step = put(Step)
    claim_all(operations_of(Step))
    change(step, state="done", state_changed=ago(10**6))
    assert chores.delete_due(operations_of(Step), 10) == 0
    work(Step)
    assert raw(Step).filter(pk=step.pk).exists()


def test_statistics_lose_counts():
    for _ in range(40):
        put(SyncLine)
    at_once(*(lambda: work(SyncLine),) * 3)
    assert sum(Stats.objects.values_list("handled", flat=True)) == 40
    assert Stats.get_for_model(SyncLine).most_recent_handled() == (40, 40, 40)


def test_the_http_runner_reports_none():
    """The results of a run are counted by model, even if several run at once; see ``test_views.py`` for the view."""
    put(SyncLine)
    runner = StatorRunner([SyncLine, Line], run_for=2)
    assert runner.run().handled == {"testapp.syncline": 1} == runner.handled
    assert wait_until(lambda: raw(SyncLine).get().state == "last")
