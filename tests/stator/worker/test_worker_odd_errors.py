"""Errors that asyncio, threads and generators treat in a special way, from every place where project code is called."""

import asyncio
from typing import Any

import pytest
from django.db.models.signals import post_init

from stator import signals
from stator.models import Report
from tests.stator.running import work
from tests.testapp.basic import Deed, DeedGraph
from tests.testapp.power import Crate, Freight, Transfer

pytestmark = pytest.mark.django_db(transaction=True)

ERRORS = [StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit]
# Seconds after which a worker that hangs is stopped, and its objects are not done.
MAX_SECONDS = 20


def handler(state, model, name, *, is_async=False):
    """A handler that raises for the object to harm; returns the model and the state of the objects."""

    def place(monkeypatch, fail):
        graph = model.state_graph
        before = getattr(graph, name)

        def call(instances):
            marked = instances if isinstance(instances, list) else [instances]
            if any(each.pk == place.harmed for each in marked):
                fail()
            return before(instances)

        async def acall(instances):
            return await call(instances) if is_async == "awaits" else call(instances)

        monkeypatch.setattr(graph, name, acall if is_async else call)

    place.model, place.state, place.harms = model, state, True
    return place


def spawned(monkeypatch, fail):
    async def child():
        fail()

    async def handle(instance):
        if instance.pk == spawned.harmed:
            await asyncio.gather(child())
        return "done"

    monkeypatch.setattr(DeedGraph, "handle_awaited", handle)


def backoff(monkeypatch, fail):
    def broken(failures):
        fail()

    def handle(instance):
        if instance.pk == backoff.harmed:
            raise ValueError("no")
        return "done"

    monkeypatch.setattr(DeedGraph.called, "backoff", broken)
    monkeypatch.setattr(DeedGraph, "handle_called", handle)


def instance_made(monkeypatch, fail):
    def made(sender, instance, **kwargs):
        if instance.pk == instance_made.harmed:
            fail()

    monkeypatch.setattr(DeedGraph, "handle_called", lambda instance: "done")
    receive(monkeypatch, post_init, made, Deed)


def receive(monkeypatch, signal, receiver, sender=None):
    monkeypatch.setattr(signal, "receivers", list(signal.receivers))
    signal.connect(receiver, sender=sender, weak=False)
    signal.sender_receivers_cache.clear()


def receiver(name, wanted="done"):
    def place(monkeypatch, fail):
        monkeypatch.setattr(DeedGraph, "handle_called", lambda instance: wanted)
        receive(monkeypatch, getattr(signals, name), lambda sender, **kwargs: fail())

    place.model, place.state, place.harms = Deed, "called", wanted != "done"
    return place


each: Any
for each, state in ((spawned, "awaited"), (backoff, "called"), (instance_made, "called")):
    each.model, each.state, each.harms = Deed, state, True

PLACES = {
    "sync handler": handler("called", Deed, "handle_called"),
    "async handler": handler("awaited", Deed, "handle_awaited", is_async=True),
    "batch": handler("sorting", Crate, "handle_sorting"),
    "async batch": handler("loading", Freight, "handle_loading", is_async="awaits"),
    "atomic": handler("new", Transfer, "handle_new"),
    "atomic batch": handler("loaded", Freight, "handle_loaded"),
    "task of a handler": spawned,
    "backoff": backoff,
    "instance": instance_made,
    "receiver of transitioned": receiver("transitioned"),
    "receiver of failed": receiver("failed", "nowhere"),
    "receiver of on_heartbeat": receiver("on_heartbeat"),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", PLACES)
def test_it_ends_no_worker_and_harms_no_other_object(monkeypatch, deeds, place, error):
    if place == "instance" and error is KeyboardInterrupt:
        pytest.skip("programs that claim make instances in their main thread, where it comes from a person")
    place = PLACES[place]

    def fail():
        raise error("odd")

    deeds[""] = lambda instance: "done"
    rows = [place.model.objects.create(state=place.state) for _ in range(3)]
    place.harmed = rows[1].pk
    place(monkeypatch, fail)
    summary = work(place.model, run_for=MAX_SECONDS)
    assert summary.ended == "idle"
    monkeypatch.undo()
    found = dict(place.model.objects.values_list("pk", "state"))
    left = {pk for pk, state in found.items() if state == place.state}
    assert not place.model.objects.filter(state_claim__isnull=False).exists()
    if place.harms:
        assert place.harmed in left
        assert Report.objects.get(object_pk=str(place.harmed)).error
        assert place.model.objects.get(pk=place.harmed).state_failures == 1
    else:
        assert not left


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ["on_start", "on_schedule"])
def test_receiver_that_prepares_the_project_ends_the_worker_with_its_error(monkeypatch, deeds, name, error):
    def fail(sender, **kwargs):
        raise error("odd")

    Deed.objects.create(deed="")
    receive(monkeypatch, getattr(signals, name), fail)
    with pytest.raises(Exception, match="odd") as raised:
        work(Deed, run_for=MAX_SECONDS)
    assert error in (type(raised.value), type(raised.value.__cause__))
    assert not Deed.objects.filter(state_claim__isnull=False).exists()
