"""A model whose column of the state has a name and values of its own."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class MailGraph(StateGraph):
    """Sent by a handler, refused after errors or a day; somebody may have a refused one sent again."""

    _values = {"queued": 0, "sending": 10, "sent": 1, "refused": 2, "recalled": 3}

    queued = State(try_interval=60, force_initial=True, max_failures=2)
    sending = State(try_interval=60, concurrency=1)
    sent = State(delete_after=3600)
    refused = State()
    recalled = State()

    queued.transitions_to(sending)
    queued.times_out_to(refused, seconds=86400)
    queued.fails_to(refused)
    sending.transitions_to(sent)
    refused.on("again").to(queued)
    refused.when(models.Q(address="")).to(recalled)

    @classmethod
    def handle_queued(cls, mail):
        if not mail.address:
            raise ValueError("no address")
        return cls.sending

    @classmethod
    def handle_sending(cls, mail):
        return cls.sent


class Mail(StatorModel):
    """A table of another application, which stores a number."""

    address = models.CharField(max_length=100, default="ada@example.org")
    status = StateField(MailGraph)

    class StatorMeta:
        history = True
