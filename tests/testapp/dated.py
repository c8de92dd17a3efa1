"""Models with dates of their own: deadlines of a column and of an expression."""

from datetime import timedelta

from django.db import models
from django.db.models import F

from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class WatchGraph(StateGraph):
    """A service that is up until no ping came in time; a ping moves the date."""

    up = State(externally_progressed=True, force_initial=True)
    down = State(externally_progressed=True)
    forgotten = State()

    up.on("reset").to(down)
    up.times_out_to(down, at="alert_after")
    down.on("ping").to(up)
    down.times_out_to(forgotten, at=F("alert_after") + F("kept_for") + timedelta(hours=1))


class Watch(StatorModel):
    name = models.CharField(max_length=50, blank=True)
    alert_after = models.DateTimeField(null=True)
    kept_for = models.DurationField(default=timedelta(0))
    state = StateField(WatchGraph)

    class StatorMeta:
        history = True


class OfferGraph(StateGraph):
    """Attempted again and again until it expires."""

    offered = State(try_interval=60)
    taken = State()
    expired = State()

    offered.transitions_to(taken)
    offered.times_out_to(expired, at="expires")

    @classmethod
    def handle_offered(cls, offer):
        if offer.taken_by == "nobody":
            raise ValueError("nobody")
        if not offer.taken_by:
            raise TryAgainLater(3600)
        return cls.taken


class Offer(StatorModel):
    taken_by = models.CharField(max_length=50, blank=True)
    expires = models.DateTimeField(null=True)
    state = StateField(OfferGraph)
