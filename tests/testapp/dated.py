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

    up.on("reset").to(down)  # stator.extensions.events
    up.times_out_to(down, at="alert_after")
    down.on("ping").to(up)  # stator.extensions.events
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


class CircularGraph(StateGraph):
    """Circulars that are sent at a date of theirs, and reminders of them at one that is computed."""

    queued = State(try_interval=60, try_at="send_after", force_initial=True, backoff=30)
    reminding = State(try_interval=60, try_at=F("send_after") + F("patience"))
    answered = State(externally_progressed=True)
    closed = State()

    queued.transitions_to(reminding, answered)
    queued.times_out_to(closed, at="expires")
    reminding.transitions_to(closed)
    answered.transitions_to(queued)

    @classmethod
    def handle_queued(cls, circular):
        if circular.name == "broken":
            raise ValueError("broken")
        if circular.name == "later":
            raise TryAgainLater
        return cls.answered if circular.name == "answered" else cls.reminding

    @classmethod
    def handle_reminding(cls, circular):
        return cls.closed


class Circular(StatorModel):
    name = models.CharField(max_length=50, blank=True)
    send_after = models.DateTimeField(null=True)
    expires = models.DateTimeField(null=True)
    patience = models.DurationField(default=timedelta(0))
    state = StateField(CircularGraph)

    class StatorMeta:
        history = True
