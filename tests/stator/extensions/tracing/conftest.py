"""Spans of the test alone."""

import pytest
from opentelemetry import trace

from stator.extensions.tracing.spans import tracer
from tests.stator.extensions.tracing.spans import Spans


@pytest.fixture
def provide(monkeypatch):
    """Has the spans of the framework made by a provider of the test alone, and leaves the one of the process alone."""
    made = []

    def make(*processors, **options):
        made.append(Spans(*processors, **options))
        monkeypatch.setattr(trace, "get_tracer", made[-1].provider.get_tracer)
        tracer.cache_clear()
        return made[-1]

    yield make
    tracer.cache_clear()
    for spans in made:
        spans.provider.shutdown()


@pytest.fixture
def spans(provide):
    return provide()
