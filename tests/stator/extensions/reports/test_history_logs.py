"""Logs of attempts in a real worker: kept with the latest error, and in the history for models with ``logs``."""

import logging

import pytest

from stator.exceptions import TryAgainLater
from stator.models import History, Report
from stator.rows.meta import options_of
from tests.stator.making import put, raw
from tests.stator.running import work
from tests.testapp.basic import Deed, DeedGraph

pytestmark = pytest.mark.django_db(transaction=True)

logger = logging.getLogger("shop.deeds")


def fails(deed):
    logger.warning("about to fail with token=abc")
    raise ValueError("no")


def waits(deed):
    logger.warning("waits")
    raise TryAgainLater(3600, reason="not yet")


def moves(deed):
    logger.warning("moves")
    return "done"


def silent(deed):
    return "done"


@pytest.fixture
def deeds(monkeypatch):
    monkeypatch.setattr(DeedGraph, "deeds", {each.__name__: each for each in (fails, waits, moves, silent)})


@pytest.fixture
def with_logs(monkeypatch):
    monkeypatch.setattr(Deed, "StatorMeta", type("StatorMeta", (), {"history": True, "logs": True}), raising=False)
    options_of.cache_clear()
    yield
    options_of.cache_clear()


@pytest.mark.parametrize("state", ["called", "awaited"])
def test_log_of_an_attempt_is_kept_with_its_error_and_no_other(deeds, state):
    failed, other = put(Deed, deed="fails", state=state), put(Deed, deed="moves", state=state)
    work(Deed)
    report = Report.objects.get()
    assert (report.object_pk, report.error) == (str(failed.pk), "ValueError")
    assert report.log.partition(" ")[2] == "WARNING shop.deeds: about to fail with token=***"
    # An error after which nothing is logged replaces it.
    raw(Deed).filter(pk=failed.pk).update(deed="unknown", state_ready=True, state_next_attempt=None)
    work(Deed)
    report = Report.objects.get()
    assert (report.error, report.log) == ("KeyError", None)
    assert not History.objects.exists()
    assert raw(Deed).get(pk=other.pk).state == "done"


@pytest.mark.usefixtures("with_logs")
@pytest.mark.parametrize("state", ["called", "awaited"])
def test_logs_of_all_attempts_are_in_the_history_of_models_that_want_them(deeds, state):
    for name in ("fails", "waits", "moves", "silent"):
        put(Deed, deed=name, state=state)
    work(Deed)
    kept = {
        (one.kind, one.to): (one.log and one.log.partition(" ")[2], one.reason)
        for one in History.objects.exclude(log=None)
    }
    assert kept == {
        ("error", ""): ("WARNING shop.deeds: about to fail with token=***", ""),
        ("wait", ""): ("WARNING shop.deeds: waits", "not yet"),
        ("move", "done"): ("WARNING shop.deeds: moves", ""),
    }
    assert [(one.kind, one.to) for one in History.objects.filter(log=None)] == [("move", "done")]
