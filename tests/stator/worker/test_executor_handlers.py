"""Results and errors of handlers in a real worker: each is recorded, and the worker lives."""

import asyncio
import logging
from contextlib import suppress
from traceback import extract_tb

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction

from stator.exceptions import Fail, TryAgainLater
from stator.models import Report
from stator.runner import StatorRunner
from stator.signals import failed
from stator.worker import worker as worker_module
from tests.sizes import CROWDED, PATIENCE
from tests.stator.making import ago, put, raw, row
from tests.stator.running import hearing, work
from tests.testapp.basic import Author, Deed, DeedGraph, Poll, StepGraph

pytestmark = pytest.mark.usefixtures("transactional_db")

RAISED = {
    "Exception": Exception, "BaseException": BaseException, "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit, "CancelledError": asyncio.CancelledError,
    "MemoryError": MemoryError, "RecursionError": RecursionError, "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration, "TimeoutError": TimeoutError,
    "ExceptionGroup": lambda text: ExceptionGroup(text, [ValueError(text)]),
    "UnicodeError": lambda text: UnicodeDecodeError("utf-8", b"\xff", 0, 1, text), "IntegrityError": IntegrityError,
}  # fmt: skip


@pytest.mark.parametrize("state", ["called", "awaited"])
def test_any_error_of_a_handler_is_recorded_and_the_worker_lives(deeds, state):
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


@pytest.mark.postgresql
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
    work(Deed, run_for=PATIENCE, shutdown_timeout=3)
    assert row(deed).state == "done"


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
    work(Deed, run_for=PATIENCE, shutdown_timeout=3)
    assert row(deed).state == "done"


ASTRAY = {
    "undeclared state": DeedGraph.called, "undeclared name": "called", "unknown name": "nowhere",
    "another graph's state": StepGraph.done, "another graph's name": "outside", "True": True, "number": 7,
    "list": ["done"], "dict": {"done": 1}, "class": DeedGraph, "bytes": b"done",
    "object that cannot be compared": type("Odd", (), {"__eq__": lambda self, other: 1 / 0, "__hash__": None})(),
}  # fmt: skip


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
        assert 30 <= (deed.state_next_attempt - deed.state_attempted).total_seconds() < 30 + CROWDED
    errors = set(Report.objects.values_list("error", flat=True))
    assert errors <= {"stator.exceptions.InvalidTransition", "ZeroDivisionError"}


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
    def test_state_and_name_move(self, deeds, state):
        deeds["state"], deeds["name"] = lambda instance: DeedGraph.done, lambda instance: "done"
        made = [Deed.objects.create(deed=name, state=state) for name in ("state", "name")]
        work(Deed)
        assert {row(deed).state for deed in made} == {"done"}

    @pytest.mark.parametrize("state", ["called", "awaited"])
    def test_fail_without_an_edge_is_an_error_as_any_other_and_says_so(self, deeds, caplog, state):
        class Refused(Fail):
            pass

        def refuse(instance):
            raise Refused("card stolen")

        deeds["refused"], deeds["broken"] = refuse, lambda instance: 1 / 0
        made = {name: Deed.objects.create(deed=name, state=state) for name in ("refused", "broken")}
        work(Deed)
        events = [event for event in caplog.records if event.getMessage() == "stator.attempt_failed"]
        assert {(event.levelname, event.model) for event in events} == {("ERROR", "testapp.deed")}
        told = {event.pk: event.message_text for event in events}
        assert told.keys() == {str(deed.pk) for deed in made.values()}
        assert told[str(made["refused"].pk)].startswith(f"card stolen; {state} has no fails_to()")

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
        assert 3 < (found.state_next_attempt - found.state_attempted).total_seconds() < 8 + CROWDED
        assert (Report.objects.get().error, Report.objects.get().message) == ("", "DNS not propagated\ufffd")

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
        assert (summary.failed, summary.lost) == (0, 0)
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
        assert summary.lost == 0
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
