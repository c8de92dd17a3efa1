"""What a handler or receiver leaves in its context - language, time zone, variables - is not found by the next."""

import decimal
from contextvars import ContextVar

import pytest
from django.utils import timezone, translation

from stator import signals
from stator.testing import drain
from tests.stator.running import connected, work
from tests.testapp.basic import Deed, DeedGraph
from tests.testapp.power import Crate, CrateGraph, Freight, FreightGraph, Transfer, TransferGraph

pytestmark = pytest.mark.django_db(transaction=True)

LEFT = ContextVar("left", default="nothing")
RUNS = {"worker": work, "drain": drain}


def look():
    return translation.get_language(), timezone.get_current_timezone_name(), LEFT.get(), decimal.getcontext().prec


def leave():
    translation.activate("fr")
    timezone.activate("Asia/Tokyo")
    LEFT.set("something")
    decimal.setcontext(decimal.Context(prec=3))


@pytest.fixture
def seen(settings):
    """What each call found; one thread, so that calls follow each other in it."""
    settings.STATOR = {"THREADS": 1}
    return []


def once(seen, result, fail):
    """A handler that looks and leaves something. Called for several objects it may ``fail``, so each is attempted."""

    def handle(instances):
        seen.append(look())
        leave()
        if fail and isinstance(instances, list) and len(instances) > 1:
            raise ValueError("one by one")
        return result

    return handle


def awaited(handle):
    async def handle_awaited(instances):
        return handle(instances)

    return handle_awaited


PLACES = {
    "sync": (Deed, "called", DeedGraph, "handle_called", "done", False),
    "async": (Deed, "awaited", DeedGraph, "handle_awaited", "done", True),
    "atomic": (Transfer, "new", TransferGraph, "handle_new", "done", False),
    "batch": (Crate, "sorting", CrateGraph, "handle_sorting", "sent", False),
    "atomic batch": (Freight, "loaded", FreightGraph, "handle_loaded", "gone", False),
    "async batch": (Freight, "loading", FreightGraph, "handle_loading", None, True),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("place", PLACES)
def test_handler_finds_nothing_that_another_left(monkeypatch, seen, place, run):
    model, state, graph, name, result, is_async = PLACES[place]
    handle = once(seen, result, "batch" in place)
    monkeypatch.setattr(graph, name, awaited(handle) if is_async else handle)
    for _ in range(3):
        model.objects.create(state=state)
    clean = look()
    RUNS[run](model)
    assert len(seen) >= 3
    assert seen == [clean] * len(seen)
    assert look() == clean


@pytest.mark.parametrize("name", ["transitioned", "on_heartbeat", "on_start", "on_schedule"])
def test_receiver_leaves_nothing_to_handlers_and_to_its_next_call(seen, monkeypatch, deeds, name):
    monkeypatch.setattr(DeedGraph, "handle_called", once(seen, "awaited", fail=False))
    monkeypatch.setattr(DeedGraph, "handle_awaited", awaited(once(seen, "done", fail=False)))

    def receive(sender, **kwargs):
        seen.append(look())
        leave()

    Deed.objects.bulk_create(Deed() for _ in range(3))
    clean = look()
    with connected(getattr(signals, name), receive):
        work(Deed)
    assert len(seen) >= 7
    assert seen == [clean] * len(seen)
