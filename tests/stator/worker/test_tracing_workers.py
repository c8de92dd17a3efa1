"""Spans of workers on a database, and of real worker processes."""

import json
import threading

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.worker.attempts import calls_of
from stator.worker.executor import attempt_sync
from tasks.models import Queue, Task
from tests.processes import wait_until
from tests.stator.running import work
from tests.stator.worker.spans import ON
from tests.testapp import actions
from tests.testapp.models import Line, SyncLine
from tests.testapp.power import Crate, Order, Transfer


@pytest.fixture
def traced(settings):
    """Workers of the test trace."""
    settings.STATOR = {**settings.STATOR, "TRACING": True}


# Workers on a database


@pytest.mark.django_db(transaction=True)
class TestWorkers:
    def test_each_attempt_of_a_worker_has_a_span(self, spans, traced):
        lines, syncs = [Line.objects.create() for _ in range(3)], [SyncLine.objects.create() for _ in range(2)]
        work(Line, SyncLine)
        for name, objects in (("line.first", lines), ("line.second", lines), ("syncline.first", syncs)):
            made = spans.named(f"attempt testapp.{name}")
            assert {span.attributes["stator.pk"] for span in made} == {str(each.pk) for each in objects}
            assert {span.attributes["stator.outcome"] for span in made} == {"moved"}
        assert len(spans.all()) == 8

    def test_batch_has_one_span_for_all(self, spans, traced):
        crates = Crate.objects.bulk_create(Crate() for _ in range(3))
        work(Crate)
        span = spans.one()
        assert (span.name, span.attributes["messaging.batch.message_count"]) == ("attempt testapp.crate.sorting", 3)
        assert set(span.attributes["stator.pks"]) == {str(crate.pk) for crate in crates}
        assert (span.attributes["stator.outcome"], span.attributes["stator.next_state"]) == ("moved", "sent")
        assert not {"stator.pk", "messaging.message.id", "stator.claim"} & set(span.attributes)

    @pytest.mark.parametrize("deed", ["raise", "stranger"])
    def test_batch_that_fails_has_a_span_and_then_each_of_its_objects(self, spans, traced, deed):
        crates = [Crate.objects.create(deed=deed), Crate.objects.create(), Crate.objects.create()]
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
        attempt_sync([claim], calls_of(ON))
        (again,) = operations.claim(states, 1)
        attempt_sync([again], calls_of(ON))
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


@pytest.mark.parametrize("processes", ["1", "2"])
def test_worker_processes_export_their_spans_before_they_end(worker_process, tmp_path, processes):
    for _ in range(5):
        Line.objects.create()
    variables = {"DJANGO_SETTINGS_MODULE": "tests.traced_settings", "TEST_SPANS": str(tmp_path)}
    with worker_process("testapp.Line", "--processes", processes, **variables) as worker:
        wait_until(lambda: Line.stator.counts()["last"] == 5, message=worker.output)
        assert worker.stop() == 0, worker.output()
    spans = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert len(spans) == 10, worker.output()
    assert {span["attributes"]["stator.outcome"] for span in spans} == {"moved"}
    assert {span["kind"] for span in spans} == {"SpanKind.CONSUMER"}
    assert {span["attributes"]["messaging.client.id"] for span in spans} <= {
        claim["attributes"]["stator.claim"][:12] for claim in spans
    }
