"""Models that operators look after: each row says itself what its handler is to do."""

from typing import Any

from django.db import models

from stator.exceptions import Fail, TryAgainLater
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class ParcelGraph(StateGraph):
    """Packed, stamped, sent and delivered; a parcel without an address is returned."""

    packed = State(try_interval=60, backoff=30, max_failures=3, expect_within=3600)
    stamped = State(try_interval=60)
    sent = State(externally_progressed=True)
    delivered = State(delete_after=86400)
    returned = State()

    packed.transitions_to(stamped)
    packed.fails_to(returned)
    stamped.transitions_to(sent)
    sent.transitions_to(delivered)
    sent.times_out_to(returned, seconds=7 * 86400)

    @classmethod
    def handle_packed(cls, parcel: Any) -> State | None:
        return _obey(parcel, cls.stamped)

    @classmethod
    async def handle_stamped(cls, parcel: Any) -> State:
        return cls.sent


# What a handler raises that was ordered to fail.
ERRORS = {"fail: key": KeyError, "fail: net": ConnectionError, "fail: time": TimeoutError}


def _obey(parcel: Any, following: State) -> State | None:
    if parcel.orders == "wait":
        return None
    if parcel.orders == "later":
        raise TryAgainLater(30, "no van today")
    if parcel.orders == "fail":
        raise ValueError(parcel.address)
    if error := ERRORS.get(parcel.orders):
        raise error(parcel.address)
    if parcel.orders == "never":
        raise Fail("no such street")
    if parcel.orders == "delete":
        parcel.delete()
    if parcel.orders == "delete rows":
        Parcel.objects.filter(pk=parcel.pk).delete()
    if parcel.orders == "move rows":
        Parcel.objects.filter(pk=parcel.pk).update(state="delivered")
    if parcel.orders == "by hand":
        parcel.transition_perform("delivered", actor="a handler")
    return following


class Parcel(StatorModel):
    """A managed model as most are."""

    state = StateField(ParcelGraph)
    address = models.CharField(max_length=200, blank=True)
    orders = models.CharField(max_length=20, blank=True)

    def __str__(self) -> str:
        return f"parcel to {self.address}"


class LetterGraph(StateGraph):
    """Written, then posted, by a handler that asks the database."""

    written = State(try_interval=60)
    posted = State()

    written.transitions_to(posted)

    @classmethod
    async def handle_written(cls, letter: Any) -> State:
        await Letter.objects.filter(pk=letter.pk).afirst()
        return cls.posted


class Letter(StatorModel):
    """A managed model whose primary key is any text."""

    number = models.CharField(max_length=100, primary_key=True)
    state = StateField(LetterGraph)


class EagerGraph(StateGraph):
    """A loop that never rests."""

    up = State(try_interval=1, force_initial=True)
    down = State(try_interval=1)

    up.transitions_to(down)
    down.transitions_to(up)

    @classmethod
    def handle_up(cls, row: Any) -> State:
        return cls.down

    @classmethod
    def handle_down(cls, row: Any) -> State:
        return cls.up


class Eager(StatorModel):
    """A managed model that is never at rest."""

    state = StateField(EagerGraph)
