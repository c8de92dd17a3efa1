"""Spans never affect an attempt, never delay the end of a worker, and cost nothing when tracing is off."""

import subprocess
import sys
import threading
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from stator.graph.outcomes import Moved
from stator.worker import tracing
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import WorkGraph
from tests.stator.worker.spans import attempt, either_way
from tests.testapp.models import Line, SyncLine


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
    assert not tracing.traced().sync.__self__._open


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


def python(code, environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


UNTRACED = """
import sys, django
from django.core.management import call_command
django.setup()
call_command("runstator", "testapp.Line", "testapp.SyncLine", "--until-idle")
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""

MISSING = """
import sys
sys.modules["opentelemetry"] = None
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:], "ARGUMENT"])
"""


def test_worker_that_does_not_trace_imports_nothing_of_it(subprocess_environment):
    Line.objects.create()
    SyncLine.objects.create()
    ran = python(UNTRACED, subprocess_environment)
    assert ran.stdout.splitlines()[-1] == "[]", ran.stderr
    assert Line.objects.get().state == SyncLine.objects.get().state == "last"


def test_missing_package_is_one_line_and_a_worker_that_does_not_start(subprocess_environment):
    environment = {**subprocess_environment, "STATOR_TRACING": "true"}
    ran = python(MISSING.replace("ARGUMENT", "runstator"), environment)
    remedy = "pip install 'django-stator[tracing]'"
    line = f"STATOR setting: TRACING needs opentelemetry-api, which is not installed; {remedy}"
    assert (ran.returncode, ran.stderr.strip()) == (2, f"CommandError: {line}")
    checked = python(MISSING.replace("ARGUMENT", "check"), environment)
    assert "(stator.E001) STATOR setting: TRACING needs opentelemetry-api, which is not installed." in checked.stderr
    assert f"HINT: {remedy}." in checked.stderr
