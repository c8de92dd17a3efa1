"""The entry for programs and tests: single cycles in the caller's thread, and real workers until idle."""

import asyncio
import logging
import threading
from contextlib import contextmanager, suppress
from traceback import extract_tb

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.test import override_settings

from stator.db import chores
from stator.exceptions import Fail, TryAgainLater
from stator.models import Report, StatorModel, Stats
from stator.runner import StatorRunner, managed
from stator.signals import failed, lease_lost, on_schedule, on_start, transitioned
from stator.worker import recorder
from stator.worker import worker as worker_module
from tests.processes import wait_until
from tests.stator.making import ago, change, expire, operations_of, put, raw, row
from tests.testapp.basic import Author, Deed, DeedGraph, Page, Poll, Rest, Step, StepGraph
from tests.testapp.keys import IntKeyed
from tests.testapp.models import Line, SyncLine


@pytest.fixture
def deeds(monkeypatch):
    """What the handlers of :class:`Deed` do, by name."""
    made = {}
    monkeypatch.setattr(DeedGraph, "deeds", made)
    return made


@contextmanager
def hearing(signal):
    """What a signal tells meanwhile."""
    heard = []

    def hear(sender, **kwargs):
        heard.append((sender, {name: value for name, value in kwargs.items() if name != "signal"}))

    signal.connect(hear)
    try:
        yield heard
    finally:
        signal.disconnect(hear)


def work(*models, **options):
    return StatorRunner(list(models), until_idle=True, **options).run()


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

    def test_errors_are_contained_and_recorded(self, deeds):
        def fail(instance):
            raise ValueError("no")

        deeds["fail"], deeds["move"] = fail, lambda instance: "done"
        bad, good = Deed.objects.create(deed="fail"), Deed.objects.create(deed="move")
        assert StatorRunner([Deed]).run_single_cycle() == 2
        assert (row(bad).state, row(bad).state_failures, row(good).state) == ("called", 1, "done")
        assert Report.objects.get().message == "no"

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_handler_that_breaks_the_transaction_does_not_break_the_callers(self, deeds, state):
        def collide(instance):
            Page.objects.create(title="taken")
            return "done"

        if state == "awaited":
            # Django lets no query be made on the event loop; the error is the same.
            deeds["collide"] = lambda instance: (_ for _ in ()).throw(IntegrityError("taken"))
        else:
            deeds["collide"] = collide
        Page.objects.create(title="taken")
        deed = Deed.objects.create(deed="collide", state=state)
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

    def test_lost_save_of_a_handler_does_not_break_the_callers_transaction(self, deeds):
        def late(instance):
            raw(Deed).filter(pk=instance.pk).update(state_claim=None)
            instance.save()

        deeds["late"] = late
        deed = Deed.objects.create(deed="late")
        assert StatorRunner([Deed]).run_single_cycle() == 1
        assert row(deed).state == "called"

    def test_deletions_timeouts_and_reaping_are_done(self):
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
        assert row(former).state == "done"
        assert row(lost).state == "done"

    def test_rows_that_are_not_due_are_left_alone(self):
        step = put(Step, state_ready=False, state_next_attempt=ago(-60))
        assert StatorRunner([Step]).run_single_cycle() == 0
        assert row(step).state == "new"

    def test_more_rows_than_a_batch_are_all_attempted(self):
        Line.objects.bulk_create(Line() for _ in range(25))
        with override_settings(STATOR={"BATCH_SIZE": 4}):
            assert StatorRunner([Line]).run_single_cycle() == 25

    def test_quarantined_rows_are_left_alone_and_suspects_attempted(self):
        put(Step, state_crashes=3)
        put(Step, state_crashes=1)
        put(Step, state_crashes=2)
        assert StatorRunner([Step]).run_single_cycle() == 2

    def test_scheduling_hook_is_called(self):
        runner = StatorRunner([Line])
        with hearing(on_schedule) as heard:
            runner.run_single_cycle()
        assert heard == [(runner, {"databases": ["default"]})]

    @pytest.mark.django_db(databases=["default", "other"])
    def test_scheduling_hook_is_told_the_databases(self):
        runner = StatorRunner([Line], database="other")
        with hearing(on_schedule) as heard:
            runner.run_single_cycle()
        assert heard == [(runner, {"databases": ["other"]})]

    def test_without_models_nothing_happens(self):
        assert StatorRunner([]).run_single_cycle() == 0


# A runner and what it is given


def test_all_models_are_run_unless_some_are_named():
    assert StatorRunner().models == managed(StatorModel.subclasses)
    assert StatorRunner([Line, Line]).models == [Line]


def test_options_win_over_settings():
    runner = StatorRunner([Line], 7, 3, None, 12.0, None, 90.0)
    settings = runner.settings()
    assert (settings.CONCURRENCY, settings.CONCURRENCY_PER_MODEL) == (7, 3)
    assert (settings.SCHEDULE_INTERVAL, settings.LEASE) == (12.0, 90.0)


def test_defaults_follow_a_lease_that_the_runner_is_given():
    settings = StatorRunner([Line], lock_expiry=20).settings()
    assert (settings.LEASE, settings.SHUTDOWN_TIMEOUT, settings.REAP_INTERVAL) == (20, 20, 5)
    settings = StatorRunner([Line], lock_expiry=3, shutdown_timeout=1).settings()
    assert (settings.LEASE, settings.SHUTDOWN_TIMEOUT, settings.REAP_INTERVAL) == (3, 1, 1.5)


def test_lease_of_the_runner_does_not_go_with_a_longer_timeout_of_the_settings():
    with (
        override_settings(STATOR={"SHUTDOWN_TIMEOUT": 30}),
        pytest.raises(ImproperlyConfigured, match=r"SHUTDOWN_TIMEOUT=30 must not be longer than LEASE=20"),
    ):
        StatorRunner([Line], lock_expiry=20).settings()


def test_plain_attributes_may_be_assigned():
    runner = StatorRunner([Line])
    runner.concurrency, runner.models, runner.handled = 5, [SyncLine], {}
    runner.started = 0.0
    runner.tasks = {}
    assert runner.worker().settings.CONCURRENCY == 5
    assert [operations.model for operations in runner.worker().operations] == [SyncLine]


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"lock_expiry": -1}, {"schedule_interval": float("nan")}])
def test_option_that_cannot_work_is_refused_with_one_line(options):
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

    def test_until_idle_with_nothing_to_do_ends(self):
        summary = work(Line)
        assert (summary.handled, summary.ended) == ({}, "idle")

    @pytest.mark.parametrize("signal", [on_start, on_schedule])
    def test_outage_in_what_a_project_does_at_start_or_at_a_pass_is_waited_out(self, signal):
        put(Line)
        calls = []

        def hear(sender, **kwargs):
            calls.append(sender)
            if len(calls) == 1:
                raise OperationalError("the connection was cut")

        signal.connect(hear)
        try:
            assert work(Line).handled == {"testapp.line": 2}
        finally:
            signal.disconnect(hear)
        assert len(calls) >= 2

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
        on_schedule.connect(hear)
        try:
            with pytest.raises(ValueError, match="a row of the configuration is missing"):
                StatorRunner([Deed], concurrency=2, schedule_interval=0.1, shutdown_timeout=3, run_for=20).run()
        finally:
            on_schedule.disconnect(hear)
        assert begun.is_set()
        for deed in map(row, held):
            assert (deed.state_claim, deed.state_ready) == (None, True)
            assert (deed.state_attempts, deed.state_failures, deed.state_crashes) == (0, 0, 0)

    @pytest.mark.parametrize(("times", "ended"), [(1, "stopped"), (2, "forced")])
    def test_it_says_how_it_was_stopped(self, times, ended):
        def stop(worker):
            for _ in range(times if not worker.summary().ended else 0):
                worker.stop()

        summary = StatorRunner([Line], progress=stop).run()
        assert (summary.ended, summary.forced) == (ended, ended == "forced")

    def test_model_that_nothing_attempts_can_be_run(self):
        put(Rest, state_changed=ago(61))
        work(Rest)
        assert not raw(Rest).exists()

    def test_what_is_old_is_pruned_once_for_each_database(self, monkeypatch):
        asked = []

        def prune(alias, limit, **ages):
            asked.append(alias)
            return limit if len(asked) == 1 else 0

        monkeypatch.setattr(chores, "prune", prune)
        work(Line, SyncLine, Step)
        # The second time because the first deleted as many as it may at once.
        assert asked == ["default", "default"]

    def test_run_for_ends_after_so_long(self):
        put(Line)
        summary = StatorRunner([Line], run_for=3).run()
        assert (summary.handled, summary.ended) == ({"testapp.line": 2}, "time over")

    def test_runs_in_a_thread_of_a_program(self):
        put(Line)
        done = []
        thread = threading.Thread(target=lambda: done.append(work(Line)))
        thread.start()
        thread.join(30)
        assert done[0].handled == {"testapp.line": 2}

    def test_rows_that_come_due_and_timeouts_are_found(self):
        due = put(Step, state_ready=False, state_next_attempt=ago(1))
        late = put(Step, state="outside", state_changed=ago(7201))
        later = put(Step, state_ready=False, state_next_attempt=ago(-60))
        work(Step)
        assert (row(due).state, row(late).state, row(later).state) == ("done", "failed", "new")

    def test_leases_that_ran_out_are_found_and_the_rows_attempted_alone(self):
        steps = [put(Step) for _ in range(3)]
        operations_of(Step).claim([StepGraph.new], 10)
        expire(*steps)
        StatorRunner([Step], run_for=4).run()
        assert {row(step).state for step in steps} == {"done"}

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


RAISED = {
    "Exception": Exception,
    "BaseException": BaseException,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "TimeoutError": TimeoutError,
    "ExceptionGroup": lambda text: ExceptionGroup(text, [ValueError(text)]),
    "UnicodeError": lambda text: UnicodeDecodeError("utf-8", b"\xff", 0, 1, text),
    "IntegrityError": IntegrityError,
}


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("state", ["called", "awaited"])
def test_whatever_a_handler_raises_is_recorded_and_the_worker_lives(deeds, state):
    """F14."""

    def raiser(error):
        def deed(instance):
            raise error("of its own")

        return deed

    deeds |= {name: raiser(error) for name, error in RAISED.items()}
    deeds["move"] = lambda instance: "done"
    for name in RAISED:
        Deed.objects.create(deed=name, state=state)
    good = [Deed.objects.create(deed="move", state=state) for _ in range(5)]
    summary = work(Deed)
    assert summary.failed == len(RAISED)
    assert summary.handled == {"testapp.deed": len(RAISED) + 5}
    assert {row(deed).state for deed in good} == {"done"}
    for deed in raw(Deed).exclude(deed="move"):
        assert (deed.state, deed.state_attempts, deed.state_failures, deed.state_crashes) == (state, 1, 1, 0), deed.deed
        assert (deed.state_claim, deed.state_ready) == (None, False)
        assert deed.state_next_attempt is not None
        report = Report.objects.get(object_pk=deed.pk)
        expected = "RuntimeError" if (deed.deed, state) == ("StopIteration", "awaited") else deed.deed
        assert expected in report.error or "Unicode" in report.error, report.error


@pytest.mark.usefixtures("transactional_db")
def test_recursion_without_end_is_an_error_like_any_other(deeds):
    def recurse(instance):
        return recurse(instance)

    deeds["recurse"] = recurse
    Deed.objects.create(deed="recurse")
    assert work(Deed).failed == 1
    assert Report.objects.get().error == "RecursionError"


async def lose():
    """Have the connection of asynchronous handlers ended by the server."""
    await sync_to_async(lambda: connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())"))()


async def lose_in_a_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(lose())


async def lose_and_wrap():
    try:
        await lose()
    except OperationalError as error:
        raise RuntimeError("wrapped") from error


async def lose_and_wait():
    try:
        await lose()
    except OperationalError:
        raise TryAgainLater(reason="not now") from None


@pytest.mark.postgresql
@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("how", [lose, lose_in_a_group, lose_and_wrap, lose_and_wait])
def test_connection_that_an_asynchronous_handler_loses_is_closed_whatever_it_makes_of_the_error(monkeypatch, how):
    async def handle(instance):
        if instance.deed == "lose":
            await how()
        await Author.objects.acount()
        return "done"

    monkeypatch.setattr(DeedGraph, "handle_awaited", handle)
    monkeypatch.setattr(worker_module, "MENDED_EVERY", 600.0)
    lost, *others = [put(Deed, deed=deed, state="awaited", state_changed=ago(10)) for deed in ("lose", "", "", "")]
    work(Deed, concurrency=1)
    assert row(lost).state == "awaited"
    assert {row(deed).state for deed in others} == {"done"}


@pytest.mark.usefixtures("transactional_db")
def test_queries_of_asynchronous_handlers_that_debug_collects_are_forgotten(monkeypatch, settings):
    async def handle(instance):
        # In one call: between two the worker may forget what the first one asked.
        assert await sync_to_async(lambda: Author.objects.count() is not None and len(connection.queries_log))()
        while await sync_to_async(lambda: len(connection.queries_log))():
            await asyncio.sleep(0.01)
        return "done"

    settings.DEBUG = True
    monkeypatch.setattr(DeedGraph, "handle_awaited", handle)
    monkeypatch.setattr(worker_module, "MENDED_EVERY", 0.1)
    deed = put(Deed, deed="", state="awaited")
    work(Deed, run_for=20, shutdown_timeout=3)
    assert row(deed).state == "done"


@pytest.mark.postgresql
@pytest.mark.usefixtures("transactional_db")
def test_connection_is_closed_that_an_asynchronous_handler_loses_and_tells_nobody_of(monkeypatch):
    async def handle(instance):
        with suppress(OperationalError):
            await lose()
        while True:
            with suppress(OperationalError, InterfaceError):
                await Author.objects.acount()
                return "done"

    monkeypatch.setattr(DeedGraph, "handle_awaited", handle)
    monkeypatch.setattr(worker_module, "MENDED_EVERY", 0.1)
    deed = put(Deed, deed="", state="awaited")
    work(Deed, run_for=20, shutdown_timeout=3)
    assert row(deed).state == "done"


ASTRAY = {
    "undeclared state": DeedGraph.called,
    "undeclared name": "called",
    "unknown name": "nowhere",
    "another graph's state": StepGraph.done,
    "another graph's name": "outside",
    "True": True,
    "number": 7,
    "list": ["done"],
    "dict": {"done": 1},
    "class": DeedGraph,
    "bytes": b"done",
    "object that cannot be compared": type("Odd", (), {"__eq__": lambda self, other: 1 / 0, "__hash__": None})(),
}


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("state", ["called", "awaited"])
def test_handler_that_goes_astray_is_refused_recorded_and_backs_off(deeds, state):
    """F20."""
    deeds |= {name: lambda instance, value=value: value for name, value in ASTRAY.items()}
    if state == "awaited":
        deeds["undeclared state"] = lambda instance: DeedGraph.awaited
        deeds["undeclared name"] = lambda instance: "awaited"
    for name in ASTRAY:
        Deed.objects.create(deed=name, state=state)
    assert work(Deed).failed == len(ASTRAY)
    for deed in raw(Deed).all():
        assert (deed.state, deed.state_version, deed.state_failures) == (state, 0, 1), deed.deed
        assert deed.state_claim is None
        assert 25 < (deed.state_next_attempt - deed.state_attempted).total_seconds() < 40
    errors = set(Report.objects.values_list("error", flat=True))
    assert errors <= {"stator.exceptions.InvalidTransition", "ZeroDivisionError"}


@pytest.mark.usefixtures("transactional_db")
class TestResults:
    def test_coroutine_of_a_sync_handler_is_refused_and_closed(self, deeds):
        async def forgotten():
            raise AssertionError

        deeds["coroutine"] = lambda instance: forgotten()
        Deed.objects.create(deed="coroutine")
        Deed.objects.create(deed="coroutine", state="awaited")
        assert work(Deed).failed == 2
        assert {report.error for report in Report.objects.all()} == {"stator.exceptions.InvalidTransition"}
        assert "an object of type coroutine" in Report.objects.first().message

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_none_waits_one_interval(self, deeds, state):
        deeds["none"] = lambda instance: None
        deed = Deed.objects.create(deed="none", state=state)
        assert work(Deed).failed == 0
        found = row(deed)
        assert (found.state, found.state_failures, found.state_attempts) == (state, 0, 1)
        assert 55 < (found.state_next_attempt - found.state_attempted).total_seconds() < 65

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_state_and_name_move(self, deeds, state):
        deeds["state"], deeds["name"] = lambda instance: DeedGraph.done, lambda instance: "done"
        made = [Deed.objects.create(deed=name, state=state) for name in ("state", "name")]
        work(Deed)
        assert {row(deed).state for deed in made} == {"done"}

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_fail_is_a_warning_and_any_other_error_an_error(self, deeds, caplog, state):
        class Refused(Fail):
            pass

        def refuse(instance):
            raise Refused("card stolen")

        deeds["refused"], deeds["broken"] = refuse, lambda instance: 1 / 0
        made = {name: Deed.objects.create(deed=name, state=state) for name in ("refused", "broken")}
        work(Deed)
        told = {
            (event.levelname, event.model, event.pk)
            for event in caplog.records
            if event.getMessage() == "stator.attempt_failed"
        }
        assert told == {
            ("WARNING", "testapp.deed", str(made["refused"].pk)),
            ("ERROR", "testapp.deed", str(made["broken"].pk)),
        }

    @pytest.mark.parametrize("state", ["called", "awaited"])
    @pytest.mark.parametrize("run", [work, lambda *models: StatorRunner(list(models)).run_single_cycle()])
    def test_failed_attempt_is_logged_with_the_stack_of_the_handler(self, deeds, caplog, state, run):
        def divide_by_nothing(instance):
            return 1 / 0

        deeds["broken"] = divide_by_nothing
        Deed.objects.create(deed="broken", state=state)
        with hearing(failed) as heard:
            run(Deed)
        [event] = [event for event in caplog.records if event.getMessage() == "stator.attempt_failed"]
        kind, error, trace = event.exc_info
        assert kind is ZeroDivisionError
        assert "divide_by_nothing" in [frame.name for frame in extract_tb(trace)]
        [(_, values)] = heard
        [(_, failure)] = values["failures"]
        assert failure.error is error

    def test_try_again_later_is_no_error_and_its_reason_is_kept(self):
        poll = Poll.objects.create(reason="DNS not propagated\x1b")
        assert work(Poll).failed == 0
        found = row(poll)
        assert (found.state_failures, found.state_ready) == (0, False)
        assert 3 < (found.state_next_attempt - found.state_attempted).total_seconds() < 8
        assert (Report.objects.get().error, Report.objects.get().message) == ("", "DNS not propagated\ufffd")

    def test_try_again_later_passes_through_except_exception(self, deeds):
        def careful(instance):
            try:
                raise TryAgainLater(after=9)
            except Exception:
                return "done"

        deeds["careful"] = careful
        deed = Deed.objects.create(deed="careful")
        work(Deed)
        assert row(deed).state == "called"

    def test_fail_without_an_edge_is_an_error(self, deeds):
        def fail(instance):
            raise Fail("never")

        deeds["fail"] = fail
        Deed.objects.create(deed="fail")
        assert work(Deed).failed == 1
        assert Report.objects.get().error == "stator.exceptions.Fail"

    def test_back_off_that_raises_is_an_error_and_does_not_end_the_worker(self, deeds, monkeypatch):
        monkeypatch.setattr(DeedGraph.called, "backoff", lambda failures: 1 / 0)
        monkeypatch.setattr(DeedGraph.awaited, "backoff", lambda failures: float("inf"))
        deeds["fail"] = lambda instance: "nowhere"
        for state in ("called", "awaited"):
            Deed.objects.create(deed="fail", state=state)
        assert work(Deed).failed == 2
        assert {report.error for report in Report.objects.all()} == {"ZeroDivisionError", "ValueError"}
        assert set(raw(Deed).values_list("state_failures", flat=True)) == {1}

    def test_handler_that_leaves_a_transaction_open_does_not_disturb_the_next(self, deeds):
        def leave_open(instance):
            transaction.atomic().__enter__()
            Author.objects.create(name="never committed")
            return "done"

        def look(instance):
            assert not connection.in_atomic_block
            Author.objects.create(name="committed")
            return "done"

        deeds |= {"leave open": leave_open, "look": look}
        for name in ("leave open", "look") * 10:
            Deed.objects.create(deed=name)
        assert work(Deed).failed == 0
        assert raw(Deed).filter(state="done").count() == 20
        assert set(Author.objects.values_list("name", flat=True)) == {"committed"}

    def test_handler_sees_its_claim(self, deeds):
        seen = []

        def look(instance):
            claim = instance.stator
            seen.append((claim.attempt, claim.idempotency_key, claim.still_mine(), claim.extend(100)))
            return "done"

        deeds["look"] = look
        deed = Deed.objects.create(deed="look")
        work(Deed)
        assert seen == [(1, f"testapp.deed:{deed.pk}:0:called", True, True)]

    def test_object_deleted_by_its_handler_is_gone_without_an_error(self, deeds):
        deeds["delete"] = lambda instance: instance.delete() and None
        Deed.objects.create(deed="delete")
        summary = work(Deed)
        assert (summary.failed, summary.lost) == (0, 1)
        assert not raw(Deed).exists()
        assert not Report.objects.exists()

    def test_object_moved_by_its_own_handler_keeps_that_state(self, deeds):
        def move(instance):
            instance.transition_perform("awaited")
            return "done"

        deeds |= {"move": move}
        deed = Deed.objects.create(deed="move")
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(deeds, "move", lambda instance: move(instance) if instance.state == "called" else None)
            summary = work(Deed)
        assert summary.lost == 1
        assert (row(deed).state, row(deed).state_version) == ("awaited", 1)

    def test_secrets_of_a_handler_are_kept_nowhere(self, deeds, caplog):
        def leak(instance):
            # Not as it is in the source, which is no secret: tracebacks show its lines.
            local = f"canary-{4700 + 11}"
            try:
                raise KeyError(f"token={local}")
            except KeyError as error:
                raise ValueError(f"cannot log in with {len(local)} characters, password={local}") from error

        deeds["leak"] = leak
        Deed.objects.create(deed="leak")
        with caplog.at_level(logging.DEBUG):
            work(Deed)
        kept = Report.objects.values().get()
        assert "canary-4711" not in str(kept)
        assert "canary-4711" not in "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.usefixtures("transactional_db")
class TestSignals:
    def test_worker_tells_of_its_start_and_of_each_scheduling_pass(self):
        with hearing(on_start) as started, hearing(on_schedule) as scheduled:
            work(Line)
        assert len(started) == 1
        assert started[0][0].settings.LEASE == 60
        assert [values for _, values in scheduled] == [{"databases": ["default"]}]

    def test_moves_are_told_of_after_their_commit(self):
        line, seen = put(Line), []

        def look(sender, moves, using, **kwargs):
            seen.extend((sender, move.pk, move.source, move.to, using, row(line).state_version) for move in moves)

        transitioned.connect(look)
        try:
            work(Line)
        finally:
            transitioned.disconnect(look)
        assert [told[:5] for told in seen] == [
            (Line, line.pk, "first", "second", "default"),
            (Line, line.pk, "second", "last", "default"),
        ]
        assert seen[0][5] >= 1
        assert seen[1][5] == 2

    def test_failures_are_told_of(self, deeds):
        deeds["astray"] = lambda instance: "nowhere"
        deed = Deed.objects.create(deed="astray")
        with hearing(failed) as heard:
            work(Deed)
        ((sender, told),) = heard
        assert (sender, told["using"]) == (Deed, "default")
        ((pk, failure),) = told["failures"]
        assert (pk, failure.kind) == (deed.pk, "stator.exceptions.InvalidTransition")

    def test_lost_leases_are_told_of(self, deeds):
        def lose(instance):
            raw(Deed).filter(pk=instance.pk).update(state_claim=None, state_ready=False, state_next_attempt=ago(-60))
            return "done"

        deeds["lose"] = lose
        deed = Deed.objects.create(deed="lose")
        with hearing(lease_lost) as heard:
            assert work(Deed).lost == 1
        assert heard == [(Deed, {"pks": [deed.pk], "using": "default"})]

    def test_timeouts_are_told_of(self):
        put(Step, state="outside", state_changed=ago(7201))
        with hearing(transitioned) as heard:
            work(Step)
        assert [(move.source, move.to) for _, told in heard for move in told["moves"]] == [("outside", "failed")]

    def test_receiver_that_raises_is_logged_and_disturbs_nothing(self, caplog):
        def broken(sender, **kwargs):
            raise RuntimeError("in a receiver")

        line = put(Line)
        transitioned.connect(broken)
        try:
            with caplog.at_level(logging.ERROR, "stator"):
                work(Line)
        finally:
            transitioned.disconnect(broken)
        assert row(line).state == "last"
        assert any(record.message == "stator.receiver_failed" for record in caplog.records)

    def test_statistics_of_a_worker_are_complete(self):
        Line.objects.bulk_create(Line() for _ in range(20))
        work(Line)
        assert Stats.get_for_model(Line).most_recent_handled() == (40, 40, 40)


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
    assert claimed[-1] <= 10 * recorder.MOST_BATCHES + 20 + 10
    assert not Line.objects.exclude(state="last").exists()
