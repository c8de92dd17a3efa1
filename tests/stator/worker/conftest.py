"""Spans of the test alone."""

import asyncio
import inspect

import pytest
from opentelemetry import trace

from stator.extensions.tracing.spans import tracer
from stator.worker.tables import Tables
from tests.sizes import PATIENCE
from tests.stator.making import operations_of
from tests.stator.worker.lacking import run
from tests.stator.worker.spans import Spans
from tests.testapp.models import Line, SyncLine


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that is a coroutine function runs on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), 2 * PATIENCE))
    return True


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


@pytest.fixture
def pair():
    return operations_of(Line), operations_of(SyncLine)


@pytest.fixture
def tables(pair):
    return Tables(list(pair), run)
