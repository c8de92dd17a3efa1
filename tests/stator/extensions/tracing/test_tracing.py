"""A span for each call of a handler: what it tells, and that it is current meanwhile."""

import asyncio
import json
import sys
import threading
import time

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.exceptions import TryAgainLater
from stator.extensions.tracing import spans as tracing
from stator.graph.outcomes import Moved
from stator.worker.around import calls_by_state
from stator.worker.attempts import Attempts
from stator.worker.executor import attempt_async, attempt_sync
from tasks.models import Queue, Task
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.stator.extensions.tracing.spans import ON, attempt, calls_by_model, calls_of, either_way
from tests.stator.running import work
from tests.stator.worker.fakes import FakeClaim, FakeOperations, WorkGraph, until
from tests.testapp import actions
from tests.testapp.models import Line, SyncLine
from tests.testapp.power import Crate, Order, Transfer


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


def test_attempt_that_is_to_be_made_again_is_no_error(spans):
    attempt(raising(TryAgainLater(after=7, reason="password=hunter2 is refused")))
    span = spans.one()
    assert (span.status.status_code, span.events) == (StatusCode.UNSET, ())
    assert (span.attributes["stator.outcome"], span.attributes["stator.delay"]) == ("waits", 7.0)
    assert span.attributes["stator.reason"] == "password=*** is refused"
    assert not {"stator.next_state", "error.type"} & set(span.attributes)


def test_error_is_an_event_in_the_words_in_which_it_is_kept(spans):
    _, outcome = attempt(raising(ConnectionError("postgresql://me:hunter2@db/x\x00" + "y" * 5000)))
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


@async_to_sync
async def _cancelled(why):
    async def act():
        await asyncio.Event().wait()

    claim = FakeClaim(FakeOperations(), "awaited", act, cancelled_for=why)
    task = asyncio.create_task(attempt_async([claim], calls_of(claim)))
    await until(lambda: claim.started)
    task.cancel()
    return (await task).ended


@pytest.mark.parametrize(
    ("why", "word", "status"), [("max_runtime", "failed", StatusCode.ERROR), ("lease", "released", StatusCode.UNSET)]
)
def test_attempt_that_was_cancelled_says_whether_it_was_for_its_time(spans, why, word, status):
    _cancelled(why)
    span = spans.one()
    assert (span.attributes["stator.outcome"], span.status.status_code) == (word, status)
    kinds = [event.attributes["exception.type"] for event in span.events]
    assert kinds == (["stator.exceptions.AttemptTimedOut"] if word == "failed" else [])


# Current while the handler runs


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

    @async_to_sync
    async def attempt_all():
        ended = []
        attempts = Attempts(ON, lambda *pair: ended.append(pair), lambda *recorded: None, calls_by_model())
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


async def test_span_of_a_sync_handler_that_is_given_up_ends_then_and_once(spans, caplog):
    gate, ended = threading.Event(), []
    attempts = Attempts(ON, lambda *pair: ended.append(pair), lambda *recorded: None, calls_by_model())
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


# Spans never affect an attempt, never delay the end of a worker, and cost nothing when tracing is off


class Faulty(SpanProcessor):
    """Raises at one end of every span."""

    def __init__(self, method):
        setattr(self, method, self.fail)

    def fail(self, *args, **kwargs):
        raise RuntimeError("the processor is broken")


@either_way
@pytest.mark.parametrize("method", ["on_start", "on_end"])
def test_processor_that_raises_does_not_touch_the_attempt(provide, caplog, is_async, method):
    provide(Faulty(method))
    before = trace.get_current_span()
    for _ in range(3):
        _, outcome = attempt(lambda: "done", is_async)
        assert outcome == Moved(WorkGraph.done)
    assert trace.get_current_span() is before
    assert caplog.messages == ["stator.tracing_failed"]
    assert caplog.records[0].error == "RuntimeError('the processor is broken')"
    assert not tracing.tracer()._open


class Stuck(SpanProcessor):
    """A processor whose server does not answer."""

    def __init__(self):
        self.asked, self.gate = threading.Event(), threading.Event()

    def force_flush(self, timeout_millis=30000):
        self.asked.set()
        return self.gate.wait(PATIENCE)


def test_end_of_a_worker_waits_for_spans_no_longer_than_so(provide, monkeypatch):
    stuck = Stuck()
    spans = provide(stuck)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    monkeypatch.setattr(tracing, "FLUSH_TIME", 0.2)
    started = time.monotonic()
    tracing.flush()
    assert 0.1 < time.monotonic() - started < PATIENCE / 2
    assert stuck.asked.is_set()
    stuck.gate.set()


def test_exporter_that_fails_at_the_end_is_logged_only(provide, monkeypatch, caplog):
    spans = provide(Faulty("force_flush"))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    tracing.flush()
    assert caplog.messages == ["stator.tracing_failed"]


@pytest.mark.django_db(transaction=True)
def test_worker_that_does_not_trace_loads_nothing_of_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "stator.extensions.tracing.spans", None)
    Line.objects.create()
    SyncLine.objects.create()
    work(Line, SyncLine)
    assert Line.objects.get().state == SyncLine.objects.get().state == "last"


def test_missing_package_is_one_line_and_a_worker_that_does_not_start(monkeypatch, settings):
    settings.STATOR = {**settings.STATOR, "TRACING": True}
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    line, remedy = "STATOR setting: TRACING needs opentelemetry-api, which is not installed", "pip install"
    with pytest.raises(CommandError, match=f"{line}; {remedy}") as refused:
        call_command("runstator")
    assert refused.value.returncode == 2
    [found] = [each for each in run_checks() if "opentelemetry" in each.msg]
    assert (found.id, found.msg, found.hint) == ("stator.E001", f"{line}.", "pip install 'django-stator[tracing]'.")


# Spans of workers on a database, and of real worker processes


@pytest.fixture
def traced(settings):
    """Workers of the test trace."""
    settings.STATOR = {**settings.STATOR, "TRACING": True}


# Workers on a database


@pytest.mark.django_db(transaction=True)
class TestWorkers:
    def test_batch_has_one_span_for_all(self, spans, traced):
        crates = Crate.objects.bulk_create(Crate() for _ in range(3))
        work(Crate)
        span = spans.one()
        assert (span.name, span.attributes["messaging.batch.message_count"]) == ("attempt testapp.crate.sorting", 3)
        assert set(span.attributes["stator.pks"]) == {str(crate.pk) for crate in crates}
        assert (span.attributes["stator.outcome"], span.attributes["stator.next_state"]) == ("moved", "sent")
        assert not {"stator.pk", "messaging.message.id", "stator.claim"} & set(span.attributes)

    def test_batch_that_fails_has_a_span_and_then_each_of_its_objects(self, spans, traced):
        crates = [Crate.objects.create(deed=deed) for deed in ("raise", "", "")]
        work(Crate)
        whole, *singles = spans.all()
        assert (whole.attributes["stator.outcome"], len(whole.events)) == ("failed", 1)
        assert whole.status.status_code is StatusCode.ERROR
        assert whole.attributes["messaging.batch.message_count"] == 3
        pks = [span.attributes["stator.pks"] for span in singles]
        assert pks == [(str(crate.pk),) for crate in crates]
        assert [span.attributes["stator.outcome"] for span in singles] == ["failed", "moved", "moved"]
        assert all(span.parent is None and span.start_time >= whole.end_time for span in singles)

    def test_atomic_attempt_has_a_span_and_one_whose_claim_has_ended_says_so(self, spans):
        transfer = Transfer.objects.create()
        operations, states = operations_for(Transfer, ON, new_worker_id()), list(Transfer.state_graph.automatic_states)
        (claim,) = operations.claim(states, 1)
        Transfer.stator.unlock()
        [calls] = calls_by_state([operations]).values()
        attempt_sync([claim], calls)
        (again,) = operations.claim(states, 1)
        attempt_sync([again], calls)
        lost, moved = spans.all()
        assert (lost.attributes["stator.outcome"], moved.attributes["stator.outcome"]) == ("lost", "moved")
        assert lost.attributes["stator.claim"] != moved.attributes["stator.claim"] == again.token.hex
        assert moved.attributes["stator.pk"] == str(transfer.pk)

    def test_statement_that_moves_rows_without_a_handler_has_a_span_where_it_moved_any(self, spans, traced):
        for amount in (200, 300, 1):
            Order.objects.create(amount=amount)
        work(Order)
        (span,) = spans.named("move testapp.order.waiting")
        assert span.attributes["messaging.batch.message_count"] == 2
        assert (span.attributes["stator.next_state"], span.attributes["stator.reason"]) == ("working", "condition met")
        assert span.end_time > span.start_time
        assert span.kind is SpanKind.CONSUMER

    def test_action_of_a_task_has_the_span_in_its_thread(self, spans, traced, monkeypatch):
        found = []

        class Seen:
            def append(self, value):
                found.append((threading.current_thread().name, trace.get_current_span().get_span_context().span_id))

        monkeypatch.setattr(actions, "seen", Seen())
        Queue.objects.create(name="images").publish("resize", {"image": 7})
        work(Task)
        (span,) = [span for span in spans.all() if span.name.startswith("attempt tasks.task.")]
        ((thread, span_id),) = found
        assert (span_id, span.attributes["stator.next_state"]) == (span.context.span_id, "completed")
        assert thread.startswith("tasks-action")


# Real worker processes, with the settings of the guide


@pytest.mark.needs("processes")
def test_worker_processes_export_their_spans_before_they_end(worker_process, tmp_path):
    for _ in range(5):
        Line.objects.create()
    variables = {"DJANGO_SETTINGS_MODULE": "tests.traced_settings", "TEST_SPANS": str(tmp_path)}
    with worker_process("testapp.Line", "--processes", "2", **variables) as worker:
        wait_until(lambda: Line.stator.counts()["last"] == 5, message=worker.output)
        assert worker.stop() == 0, worker.output()
    spans = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert len(spans) == 10, worker.output()
    assert {span["attributes"]["stator.outcome"] for span in spans} == {"moved"}
    assert {span["kind"] for span in spans} == {"SpanKind.CONSUMER"}
    assert {span["attributes"]["messaging.client.id"] for span in spans} <= {
        claim["attributes"]["stator.claim"][:12] for claim in spans
    }
