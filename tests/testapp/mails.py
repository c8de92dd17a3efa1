"""A model whose column of the state has a name and values of its own."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class MailGraph(StateGraph):
    """Sent by a handler, refused after errors or a day; somebody may have a refused one sent again."""

    queued = State(value=0, try_interval=60, force_initial=True, max_failures=2)
    sending = State(value=10, try_interval=60, concurrency=1)
    sent = State(value=1, delete_after=3600)
    refused = State(value=2, label="Turned down")
    recalled = State(value=3)

    queued.transitions_to(sending)
    queued.times_out_to(refused, seconds=86400)
    queued.fails_to(refused)
    sending.transitions_to(sent)
    refused.on("again").to(queued)  # stator.extensions.events
    refused.when(models.Q(address="")).to(recalled)

    @classmethod
    def handle_queued(cls, mail):
        if not mail.address:
            raise ValueError("no address")
        return cls.sending

    @classmethod
    def handle_sending(cls, mail):
        return cls.sent


class Postcard(StatorModel):
    """A table that is older than its graph: the column has its own type, and is null where nobody has begun."""

    text = models.CharField(max_length=100, default="Dear Ada")
    # A part of an address, as others have a field of this name.
    state = models.CharField(max_length=20, blank=True)
    status = StateField[int | None](
        MailGraph, base_field=models.PositiveSmallIntegerField, null=True, blank=True, editable=True
    )
    address = models.CharField(max_length=100, default="ada@example.org")

    class StatorMeta:
        history = True


class Mail(StatorModel):
    """A table of another application, which stores a number."""

    address = models.CharField(max_length=100, default="ada@example.org")
    status = StateField[int](MailGraph)

    class StatorMeta:
        history = True


class SackGraph(StateGraph):
    """Sealed once all its slips are weighed."""

    loose = State(value=0, force_initial=True)
    sealed = State(value=1)
    loose.when_all("slips", in_=["weighed"]).to(sealed)  # stator.extensions.related


class Sack(StatorModel):
    """A related object that waits for others, in numbers."""

    status = StateField[int](SackGraph)


class SlipGraph(StateGraph):
    """Weighed by a durable step, one sender after the other."""

    new = State(value=10, try_interval=60)
    weighed = State(value=20)
    new.transitions_to(weighed)

    @classmethod
    def handle_new(cls, slip):
        slip.grams = slip.stator.step("weigh", slip.weigh)
        slip.save(update_fields=["grams"])
        return 20


class Slip(StatorModel):
    """Waits for another of its kind, takes turns with other senders, and remembers a step."""

    status = StateField[int](SlipGraph)
    sack = models.ForeignKey(Sack, models.CASCADE, related_name="slips")
    after = models.ForeignKey("self", models.CASCADE, null=True)
    sender = models.CharField(max_length=20, default="ada")
    grams = models.IntegerField(default=0)

    class StatorMeta:
        fair_by = "sender"
        waits_for = {"after": [SlipGraph.weighed]}

    class Meta:
        indexes = [models.Index(fields=["sack", "status"], name="testapp_slip_of_sack")]

    def weigh(self):
        """Return something that is asked for once."""
        return self.grams + 20
