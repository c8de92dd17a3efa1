"""Errors that asyncio, threads and generators treat in a special way, from every place where project code is called."""

import asyncio
import itertools
from typing import Any

import pytest
from django.db.models.signals import post_init

from stator import signals
from stator.models import Report
from tests.sizes import PATIENCE
from tests.stator.running import work
from tests.testapp.basic import Deed, DeedGraph
from tests.testapp.power import Crate, Freight, Transfer

pytestmark = pytest.mark.django_db(transaction=True)

ERRORS = [StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit]
# The only ones of each kind: batches raise one error for all their objects.
KINDS = [StopIteration, asyncio.CancelledError, SystemExit]


def handler(state, model, name, *, is_async=False):
    """A handler that raises for the objects to harm; returns the model and the state of the objects."""

    def place(monkeypatch, fail):
        graph = model.state_graph
        before = getattr(graph, name)

        def call(instances):
            for each in instances if isinstance(instances, list) else [instances]:
                fail(each)
            return before(instances)

        async def acall(instances):
            return await call(instances) if is_async == "awaits" else call(instances)

        monkeypatch.setattr(graph, name, acall if is_async else call)

    place.model, place.state, place.harms = model, state, True
    return place


def spawned(monkeypatch, fail):
    async def child(instance):
        fail(instance)

    async def handle(instance):
        await asyncio.gather(child(instance))
        return "done"

    monkeypatch.setattr(DeedGraph, "handle_awaited", handle)


def backoff(monkeypatch, fail):
    errors = itertools.cycle(ERRORS)

    def broken(failures):
        raise next(errors)("odd")

    def handle(instance):
        try:
            fail(instance)
        except BaseException as error:
            raise ValueError("no") from error
        return "done"

    monkeypatch.setattr(DeedGraph.called, "backoff", broken)
    monkeypatch.setattr(DeedGraph, "handle_called", handle)


def instance_made(monkeypatch, fail):
    monkeypatch.setattr(DeedGraph, "handle_called", lambda instance: "done")
    receive(monkeypatch, post_init, lambda sender, instance, **kwargs: fail(instance), Deed)


def receive(monkeypatch, signal, receiver, sender=None):
    monkeypatch.setattr(signal, "receivers", list(signal.receivers))
    signal.connect(receiver, sender=sender, weak=False)
    signal.sender_receivers_cache.clear()


def receiver(name, wanted="done"):
    def place(monkeypatch, fail):
        errors = itertools.cycle(ERRORS)

        def broken(sender, **kwargs):
            raise next(errors)("odd")

        monkeypatch.setattr(DeedGraph, "handle_called", lambda instance: wanted)
        receive(monkeypatch, getattr(signals, name), broken)

    place.model, place.state, place.harms = Deed, "called", wanted != "done"
    return place


each: Any
for each, state in ((spawned, "awaited"), (backoff, "called"), (instance_made, "called")):
    each.model, each.state, each.harms = Deed, state, True

PLACES = {
    "atomic": handler("new", Transfer, "handle_new"),
    "task of a handler": spawned,
    "backoff": backoff,
    "instance": instance_made,
    "receiver of transitioned": receiver("transitioned"),
    "receiver of failed": receiver("failed", "nowhere"),
    "receiver of on_heartbeat": receiver("on_heartbeat"),
}
BATCHES = {
    "batch": handler("sorting", Crate, "handle_sorting"),
    "async batch": handler("loading", Freight, "handle_loading", is_async="awaits"),
    "atomic batch": handler("loaded", Freight, "handle_loaded"),
}


def check(monkeypatch, place, errors):
    """Of some rows one raises each error; a worker attempts them all."""
    harmed = {}

    def fail(instance):
        if instance.pk in harmed:
            raise harmed[instance.pk]("odd")

    rows = [place.model.objects.create(state=place.state) for _ in range(len(errors) + 2)]
    harmed |= {row.pk: error for row, error in zip(rows[1:], errors, strict=False)}
    place(monkeypatch, fail)
    summary = work(place.model, run_for=PATIENCE)
    assert summary.ended == "idle"
    monkeypatch.undo()
    found = dict(place.model.objects.values_list("pk", "state"))
    left = {pk for pk, state in found.items() if state == place.state}
    assert not place.model.objects.filter(state_claim__isnull=False).exists()
    if not place.harms:
        assert not left
        return
    assert {*harmed} <= left
    for pk in harmed:
        assert Report.objects.get(object_pk=str(pk)).error
        assert place.model.objects.get(pk=pk).state_failures == 1


@pytest.mark.parametrize("place", PLACES)
def test_it_ends_no_worker_and_harms_no_other_object(monkeypatch, deeds, place):
    # Programs that claim make instances in their main thread, where it comes from a person.
    errors = [error for error in ERRORS if (place, error) != ("instance", KeyboardInterrupt)]
    deeds[""] = lambda instance: "done"
    check(monkeypatch, PLACES[place], errors)


@pytest.mark.parametrize(("place", "error"), [*zip(BATCHES, KINDS, strict=True), ("async batch", StopIteration)])
def test_it_harms_no_other_object_of_a_batch(monkeypatch, place, error):
    check(monkeypatch, BATCHES[place], [error])


@pytest.mark.parametrize(
    ("name", "error"), [("on_start", SystemExit), ("on_start", StopIteration), ("on_schedule", asyncio.CancelledError)]
)
def test_receiver_that_prepares_the_project_ends_the_worker_with_its_error(monkeypatch, deeds, name, error):
    def fail(sender, **kwargs):
        raise error("odd")

    Deed.objects.create(deed="")
    receive(monkeypatch, getattr(signals, name), fail)
    with pytest.raises(Exception, match="odd") as raised:
        work(Deed, run_for=PATIENCE)
    assert error in (type(raised.value), type(raised.value.__cause__))
    assert not Deed.objects.filter(state_claim__isnull=False).exists()
