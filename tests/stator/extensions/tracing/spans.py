"""Spans that were exported, and attempts that make some."""

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stator.conf import Settings
from stator.worker.around import calls_by_state
from stator.worker.executor import attempt_async, attempt_sync
from tests.stator.worker.fakes import FakeClaim, FakeOperations

ON = Settings(TRACING=True)


def traced_operations():
    operations = FakeOperations()
    operations.settings = ON
    return operations


def calls_by_model():
    """The calls of the handlers of the fakes' model."""
    return calls_by_state([traced_operations()])


def calls_of(claim):
    return calls_by_model()[claim.operations.label, claim.state.name]


class Spans:
    """The exported spans, and a tracer for handlers that make spans themselves."""

    def __init__(self, *processors, **options):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        for processor in (SimpleSpanProcessor(self._exporter), *processors):
            self.provider.add_span_processor(processor)
        self.tracer = self.provider.get_tracer("tests")

    def all(self):
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time)

    def named(self, name):
        return [span for span in self.all() if span.name == name]

    def one(self):
        (span,) = self.all()
        return span


def attempt(act, is_async=False, **attributes):
    """A claim, and the outcome of the attempt that does what ``act`` does."""

    async def act_async():
        return act()

    claim = FakeClaim(
        FakeOperations(), "awaited" if is_async else "called", act_async if is_async else act, **attributes
    )
    calls = calls_of(claim)
    attempted = asyncio.run(attempt_async([claim], calls)) if is_async else attempt_sync([claim], calls)
    return claim, attempted.ended[0][1]


either_way = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
