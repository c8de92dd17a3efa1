"""A span for each call of a handler: what it tells, and that it is current meanwhile."""

import asyncio
import threading
import time

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from stator.exceptions import TryAgainLater
from stator.graph.outcomes import Moved
from stator.worker.attempts import Attempts, calls_of
from stator.worker.executor import attempt_async
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import FakeClaim, FakeOperations, WorkGraph, on_loop, until
from tests.stator.worker.spans import ON, attempt, either_way


def raising(error):
    def act():
        raise error

    return act


# What a span tells


@either_way
def test_span_tells_what_was_attempted_and_what_came_of_it(spans, is_async):
    before = time.time_ns()
    claim, outcome = attempt(lambda: "done", is_async, attempt=3, failures=2)
    span, state = spans.one(), claim.state.name
    assert outcome == Moved(WorkGraph.done)
    assert (span.name, span.kind, span.parent) == (f"attempt app.model.{state}", SpanKind.CONSUMER, None)
    assert (span.status.status_code, span.events) == (StatusCode.UNSET, ())
    assert before <= span.start_time <= span.end_time <= time.time_ns()
    assert dict(span.attributes) == {
        "messaging.system": "stator",
        "messaging.operation.name": "attempt",
        "messaging.operation.type": "process",
        "messaging.destination.name": f"app.model.{state}",
        "messaging.client.id": "0" * 12,
        "messaging.message.id": str(claim.pk),
        "stator.model": "app.model",
        "stator.state": state,
        "stator.database": "default",
        "stator.pk": str(claim.pk),
        "stator.attempt": 3,
        "stator.failures": 2,
        "stator.claim": claim.token.hex,
        "stator.outcome": "moved",
        "stator.next_state": "done",
    }


@either_way
def test_attempt_that_is_to_be_made_again_is_no_error(spans, is_async):
    attempt(raising(TryAgainLater(after=7, reason="password=hunter2 is refused")), is_async)
    span = spans.one()
    assert (span.status.status_code, span.events) == (StatusCode.UNSET, ())
    assert (span.attributes["stator.outcome"], span.attributes["stator.delay"]) == ("waits", 7.0)
    assert span.attributes["stator.reason"] == "password=*** is refused"
    assert not {"stator.next_state", "error.type"} & set(span.attributes)


@either_way
def test_error_is_an_event_in_the_words_in_which_it_is_kept(spans, is_async):
    _, outcome = attempt(raising(ConnectionError("postgresql://me:hunter2@db/x\x00" + "y" * 5000)), is_async)
    span, failure = spans.one(), outcome.failure
    (event,) = span.events
    assert event.name == "exception"
    assert dict(event.attributes) == {
        "exception.type": "ConnectionError",
        "exception.message": failure.message,
        "exception.stacktrace": failure.traceback,
    }
    assert failure.message.startswith("postgresql://me:***@db/x\ufffdyyy")
    assert "in act" in failure.traceback
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        f"ConnectionError: {failure.message}",
    )
    assert (span.attributes["stator.outcome"], span.attributes["error.type"]) == ("failed", "ConnectionError")
    assert span.attributes["stator.delay"] == outcome.delay
    assert "hunter2" not in span.to_json()


@on_loop
async def _cancelled(why):
    async def act():
        await asyncio.Event().wait()

    claim = FakeClaim(FakeOperations(), "awaited", act, cancelled_for=why)
    task = asyncio.create_task(attempt_async([claim], calls_of(ON)))
    await until(lambda: claim.started)
    task.cancel()
    return (await task).ended


@pytest.mark.parametrize(
    ("why", "word", "status"),
    [("max_runtime", "failed", StatusCode.ERROR), ("lease", "released", StatusCode.UNSET)],
)
def test_attempt_that_was_cancelled_says_whether_it_was_for_its_time(spans, why, word, status):
    _cancelled(why)
    span = spans.one()
    assert (span.attributes["stator.outcome"], span.status.status_code) == (word, status)
    kinds = [event.attributes["exception.type"] for event in span.events]
    assert kinds == (["stator.exceptions.AttemptTimedOut"] if word == "failed" else [])


# Current while the handler runs


def test_sync_handler_has_the_span_in_its_thread_and_what_it_makes_is_a_child(spans):
    def act():
        seen.append((threading.current_thread().name, trace.get_current_span().get_span_context().span_id))
        with spans.tracer.start_as_current_span("child"):
            pass
        return "done"

    seen = []

    @on_loop
    async def attempt_twice():
        ended = []
        attempts = Attempts(ON, lambda *pair: ended.append(pair), lambda *recorded: None)
        attempts.begin([FakeClaim(FakeOperations(), "called", act) for _ in range(2)])
        await until(lambda: len(ended) == 2)
        attempts.stop()

    attempt_twice()
    attempts = {span.context.span_id: span for span in spans.named("attempt app.model.called")}
    assert {name.rpartition("-")[0] for name, _ in seen} == {"stator-handler"}
    assert {span_id for _, span_id in seen} == set(attempts)
    assert {child.parent.span_id for child in spans.named("child")} == set(attempts)
    assert all(span.parent is None for span in attempts.values())


def test_async_handlers_that_take_turns_have_each_their_own(spans):
    inside = []

    async def act():
        inside.append(trace.get_current_span())
        while len(inside) < 5:
            await asyncio.sleep(0)
        with spans.tracer.start_as_current_span("child") as child:
            assert child.parent.span_id == trace.get_current_span().parent.span_id
            await asyncio.to_thread(lambda: spans.tracer.start_span("in a thread").end())
        assert trace.get_current_span() in inside
        return "done"

    @on_loop
    async def attempt_all():
        ended = []
        attempts = Attempts(ON, lambda *pair: ended.append(pair), lambda *recorded: None)
        attempts.begin([FakeClaim(FakeOperations(), "awaited", act) for _ in range(5)])
        await until(lambda: len(ended) == 5)
        assert {outcome for _, outcome in ended} == {Moved(WorkGraph.done)}

    attempt_all()
    attempts = {span.context.span_id for span in spans.named("attempt app.model.awaited")}
    children = spans.named("child")
    assert len(attempts) == 5
    assert {child.parent.span_id for child in children} == attempts
    assert {span.parent.span_id for span in spans.named("in a thread")} == {span.context.span_id for span in children}


# Handlers that do not return


@on_loop
async def test_span_of_a_sync_handler_that_is_given_up_ends_then_and_once(spans, caplog):
    gate, ended = threading.Event(), []
    attempts = Attempts(ON, lambda *pair: ended.append(pair), lambda *recorded: None)
    claim = FakeClaim(FakeOperations(), "called", lambda: gate.wait(PATIENCE) and "done", max_runtime=5.0)
    attempts.begin([claim])
    await until(lambda: claim.started)
    claim.started -= 6
    attempts.sweep()
    span = spans.one()
    assert span.attributes["error.type"] == "stator.exceptions.AttemptTimedOut"
    assert span.status.description.endswith("longer than max_runtime=5 s and was ended")
    gate.set()
    await until(lambda: attempts.room("app.model", False) > 0)
    attempts.stop()
    assert spans.one().attributes["stator.outcome"] == "failed"
    assert not caplog.records[1:]
