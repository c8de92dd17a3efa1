"""The entry for programs and tests: single cycles in the caller's thread, and real workers until idle."""

import asyncio
import threading

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.test import override_settings

from stator.models import Report, StatorModel
from stator.rows.meta import managed
from stator.runner import StatorRunner
from stator.signals import on_schedule, on_start
from stator.worker import recorder
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.stator.making import ago, change, expire, operations_of, put, raw, row
from tests.stator.running import connected, hearing, work
from tests.testapp.basic import Author, Deed, DeedGraph, Page, Rest, Step, StepGraph
from tests.testapp.keys import IntKeyed
from tests.testapp.models import Line, SyncLine

# Transactions


@pytest.mark.django_db
def test_worker_within_a_transaction_is_refused_with_the_remedy():
    Line.objects.create()
    with pytest.raises(RuntimeError, match=r"within a transaction on 'default'.* stator.testing.drain\(\)"):
        StatorRunner([Line], until_idle=True).run()


# Single cycles


@pytest.mark.django_db
class TestSingleCycle:
    def test_each_row_takes_one_step(self):
        line, sync = Line.objects.create(), SyncLine.objects.create()
        runner = StatorRunner([Line, SyncLine])
        assert runner.run_single_cycle() == 2
        assert (row(line).state, row(sync).state) == ("second", "last")
        assert runner.run_single_cycle() == 1
        assert row(line).state == "last"
        assert runner.run_single_cycle() == 0
        assert runner.handled == {"testapp.line": 2, "testapp.syncline": 1}

    def test_handlers_run_in_the_callers_thread_on_its_connection_inside_its_transaction(self, deeds):
        seen = []

        def look(instance):
            seen.append((threading.current_thread(), connection.in_atomic_block, Author.objects.count()))
            return "done"

        deeds["look"] = look
        Author.objects.create(name="not committed")
        Deed.objects.create(deed="look")
        StatorRunner([Deed]).run_single_cycle()
        assert seen == [(threading.current_thread(), True, 1)]

    def test_async_handlers_see_the_callers_transaction_too(self, deeds):
        async def look(instance):
            seen.append(await Author.objects.acount())
            return "done"

        seen = []
        deeds["look"] = lambda instance: None
        Author.objects.create(name="not committed")
        deed = Deed.objects.create(deed="look", state="awaited")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeedGraph, "handle_awaited", look)
            StatorRunner([Deed]).run_single_cycle()
        assert seen == [1]
        assert row(deed).state == "done"

    def test_handler_that_breaks_the_transaction_does_not_break_the_callers(self, deeds):
        def collide(instance):
            Page.objects.create(title="taken")
            return "done"

        deeds["collide"] = collide
        Page.objects.create(title="taken")
        deed = Deed.objects.create(deed="collide")
        StatorRunner([Deed]).run_single_cycle()
        assert row(deed).state_failures == 1
        assert Report.objects.get().error == "django.db.utils.IntegrityError"
        assert Page.objects.count() == 1

    def test_handler_that_swallows_a_database_error_does_not_break_the_callers_transaction(self, deeds):
        def swallow(instance):
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT nothing FROM nowhere")
            except Exception:
                return "done"

        deeds["swallow"] = swallow
        deed = Deed.objects.create(deed="swallow")
        StatorRunner([Deed]).run_single_cycle()
        assert row(deed).state == "done"

    def test_deletions_timeouts_and_reaping_are_done(self, caplog):
        gone = put(Rest, state_changed=ago(61))
        late = put(Step, state="outside", state_changed=ago(7201))
        former = put(Step)
        change(former, state="older", state_ready=False)
        lost = put(Step)
        operations_of(Step).claim([StepGraph.new], 1)
        expire(lost)
        StatorRunner([Rest, Step]).run_single_cycle()
        assert not raw(Rest).filter(pk=gone.pk).exists()
        assert row(late).state == "failed"
        assert [each.count for each in caplog.records if each.msg == "stator.leases_expired"] == [1]
        assert row(former).state == "done"
        assert row(lost).state == "done"

    @pytest.mark.django_db(databases=["default", "other"])
    def test_scheduling_hook_is_told_the_databases(self):
        runner = StatorRunner([Line], database="other")
        with hearing(on_schedule) as heard:
            runner.run_single_cycle()
        assert heard == [(runner, {"databases": ["other"]})]


# A runner and what it is given


def test_all_models_are_run_unless_some_are_named_and_options_win_over_settings():
    assert StatorRunner().models == managed(StatorModel.subclasses)
    assert StatorRunner([Line, Line]).models == [Line]
    runner = StatorRunner([Line], 7, 3, None, 12.0, None, 90.0)
    settings = runner.settings()
    assert (settings.CONCURRENCY, settings.CONCURRENCY_PER_MODEL) == (7, 3)
    assert (settings.SCHEDULE_INTERVAL, settings.LEASE) == (12.0, 90.0)


def test_plain_attributes_may_be_assigned():
    runner = StatorRunner([Line])
    runner.concurrency, runner.models, runner.handled = 5, [SyncLine], {}
    runner.started = 0.0
    runner.tasks = {}
    assert runner.worker().settings.CONCURRENCY == 5
    assert [operations.model for operations in runner.worker().operations] == [SyncLine]


def test_option_that_cannot_work_is_refused_with_one_line():
    for options in ({"concurrency": 0}, {"lock_expiry": -1}, {"schedule_interval": float("nan")}):
        with pytest.raises(ImproperlyConfigured, match=r"^STATOR setting: "):
            StatorRunner([Line], **options).run()


# Real workers


@pytest.mark.usefixtures("transactional_db")
class TestWorker:
    def test_until_idle_moves_everything_and_tells_what_was_done(self):
        Line.objects.bulk_create(Line() for _ in range(50))
        SyncLine.objects.bulk_create(SyncLine() for _ in range(50))
        runner = StatorRunner([Line, SyncLine], until_idle=True)
        summary = runner.run()
        assert summary.handled == {"testapp.line": 100, "testapp.syncline": 50} == runner.handled
        assert summary.moved[("testapp.line", "last")] == 50
        assert (summary.failed, summary.lost, summary.forced, summary.unfinished) == (0, 0, False, 0)
        assert not raw(Line).exclude(state="last", state_version=2, state_claim=None).exists()

    @pytest.mark.parametrize("signal", [on_start, on_schedule])
    def test_outage_in_what_a_project_does_at_start_or_at_a_pass_is_waited_out(self, signal):
        put(Line)
        calls = []

        def hear(sender, **kwargs):
            calls.append(sender)
            if len(calls) == 1:
                raise OperationalError("the connection was cut")

        with connected(signal, hear):
            assert work(Line).handled == {"testapp.line": 2}
        # Everything may be done before the next pass; but nothing is claimed before the start.
        assert len(calls) >= (2 if signal is on_start else 1)

    def test_error_in_what_a_project_does_at_a_pass_ends_it_and_hands_back_what_it_holds(self, deeds, monkeypatch):
        begun = threading.Event()

        async def wait(instance):
            begun.set()
            await asyncio.Event().wait()

        def hear(sender, **kwargs):
            if begun.is_set():
                raise ValueError("a row of the configuration is missing")

        monkeypatch.setattr(DeedGraph, "handle_awaited", wait)
        held = [put(Deed, deed="", state="awaited") for _ in range(3)]
        runner = StatorRunner([Deed], concurrency=2, schedule_interval=0.1, shutdown_timeout=3, run_for=PATIENCE)
        with connected(on_schedule, hear), pytest.raises(ValueError, match="a row of the configuration is missing"):
            runner.run()
        assert begun.is_set()
        ended = list(map(row, held))
        for deed in ended:
            assert (deed.state_claim, deed.state_ready) == (None, True)
            assert (deed.state_failures, deed.state_crashes) == (0, 0)
        # The two that had begun stay counted.
        assert sorted(deed.state_attempts for deed in ended) == [0, 1, 1]

    @pytest.mark.parametrize(("times", "ended"), [(1, "stopped"), (2, "forced")])
    def test_it_says_how_it_was_stopped(self, times, ended):
        def stop(worker):
            for _ in range(times if not worker.summary().ended else 0):
                worker.stop()

        summary = StatorRunner([Line], progress=stop).run()
        assert (summary.ended, summary.forced) == (ended, ended == "forced")

    def test_run_for_ends_after_so_long(self):
        assert StatorRunner([Line], run_for=0.5).run().ended == "time over"

    def test_attempts_at_once_are_limited_by_model(self):
        running, most = set(), []

        async def handle(instance):
            running.add(instance.pk)
            most.append(len(running))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.discard(instance.pk)
            return "last"

        IntKeyed.objects.bulk_create(IntKeyed(state="second") for _ in range(30))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IntKeyed.state_graph, "handle_second", handle)
            work(IntKeyed, concurrency=20, concurrency_per_model=3)
        assert max(most) <= 3
        assert raw(IntKeyed).filter(state="last").count() == 30


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@override_settings(STATOR={"BATCH_SIZE": 10})
def test_no_more_is_attempted_than_can_soon_be_recorded(monkeypatch):
    Line.objects.bulk_create(Line() for _ in range(500))
    worker = StatorRunner([Line], concurrency=20, until_idle=True).worker()
    write, claimed = recorder.record, []

    def claims_stand_still():
        claimed.append(worker.dispatcher.claimed)
        return worker.recorder.is_behind("default") and len(claimed) > 10 and len(set(claimed[-10:])) == 1

    def late(*args, **kwargs):
        # The first one, while all others wait.
        if not claimed:
            wait_until(claims_stand_still)
        return write(*args, **kwargs)

    monkeypatch.setattr(recorder, "record", late)
    worker.run()
    # So many outcomes may wait; what was claimed before they did is attempted as well.
    assert claimed[-1] <= 10 * recorder.MAX_BATCHES + 20 + 10
    assert not Line.objects.exclude(state="last").exists()
