"""Models whose rows other code still moves, while workers look on."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class MailingGraph(StateGraph):
    """Every kind of thing that workers do: attempt, time out, delete, and move by a condition."""

    queued = State(try_interval=60, force_initial=True, concurrency=1)
    sending = State(externally_progressed=True)
    sent = State(delete_after=3600, externally_progressed=True)
    void = State()
    returned = State()

    queued.transitions_to(sent)
    queued.transitions_to(sending)
    queued.transitions_to(void)
    sending.times_out_to(queued, seconds=3600)
    sent.transitions_to(void)
    returned.when(models.Q(text="")).to(void)
    sent.transitions_to(returned)

    @classmethod
    def handle_queued(cls, letter):
        return cls.sent


class Flyer(StatorModel):
    """All states are in shadow. Some are told by the text, as the old code writes it."""

    text = models.CharField(max_length=100, default="Dear Ada")
    state = StateField(MailingGraph)

    class StatorMeta:
        history = True
        shadow = True
        adopts = {"sending": models.Q(text="on its way"), "void": models.Q(text__in=["on its way", "thrown away"])}


class Leaflet(StatorModel):
    """Workers have taken over ``queued``; the rest is in shadow."""

    text = models.CharField(max_length=100, default="a book")
    state = StateField(MailingGraph)

    class StatorMeta:
        history = True
        shadow = ("sending", "sent")
