"""Models whose ready rows are not claimed by age alone, and two that work side by side."""

import asyncio
import threading
import time

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class TicketGraph(StateGraph):
    """Goes to the end at once; in one of the states only two at a time."""

    new = State(try_interval=60, force_initial=True)
    narrow = State(try_interval=60, concurrency=2)
    done = State()
    new.transitions_to(done, narrow)
    narrow.transitions_to(done)

    seen: list[int] = []

    @classmethod
    async def handle_new(cls, ticket):
        cls.seen.append(ticket.pk)
        return cls.done

    @classmethod
    async def handle_narrow(cls, ticket):
        cls.seen.append(ticket.pk)
        return cls.done


class Ticket(StatorModel):
    """The smaller its urgency, the sooner. The column is called as something in the statement that claims."""

    state = StateField(TicketGraph)
    urgency = models.SmallIntegerField(default=5, db_column="place")

    class StatorMeta:
        priority = "urgency"


class Enquiry(StatorModel):
    """Tenants take turns."""

    state = StateField(TicketGraph)
    tenant = models.CharField(max_length=20)

    class StatorMeta:
        fair_by = "tenant"


class Sender(models.Model):
    name = models.CharField(max_length=20)

    class Meta:
        ordering = ("-name",)


class Consignment(StatorModel):
    """Senders take turns, and the urgent consignments of each come first. As above."""

    state = StateField(TicketGraph)
    sender = models.ForeignKey(Sender, on_delete=models.CASCADE)
    urgency = models.IntegerField("urgency: smaller is sooner", default=5, db_column="pk")

    class StatorMeta:
        priority = "urgency"
        fair_by = "sender"


class Rescue(StatorModel):
    """The larger its urgency, the sooner; rescues of unknown urgency come last."""

    state = StateField(TicketGraph)
    urgency = models.IntegerField(null=True, db_column="place")

    class StatorMeta:
        priority = "-urgency"


class Appointment(StatorModel):
    """The smaller its day, the sooner; those without a day come last. Its day is computed by the database."""

    state = StateField(TicketGraph)
    week = models.SmallIntegerField(null=True)
    weekday = models.SmallIntegerField(default=0)
    urgency = models.GeneratedField(
        expression=models.F("week") * 7 + models.F("weekday"), output_field=models.IntegerField(), db_persist=True
    )

    class StatorMeta:
        priority = "urgency"


class Donation(StatorModel):
    """Senders take turns, and the largest donations of each come first."""

    state = StateField(TicketGraph)
    sender = models.ForeignKey(Sender, on_delete=models.CASCADE)
    urgency = models.PositiveSmallIntegerField(default=1)

    class StatorMeta:
        priority = "-urgency"
        fair_by = "sender"


class CrowdGraph(StateGraph):
    """Each attempt takes about a millisecond, in every manner of handler."""

    threaded = State(try_interval=60, force_initial=True)
    awaited = State(try_interval=60)
    narrow = State(try_interval=60, concurrency=1)
    done = State()
    threaded.transitions_to(done, awaited, narrow)
    awaited.transitions_to(done)
    narrow.transitions_to(done)

    begun: dict[tuple[str, int], float] = {}

    @classmethod
    def handle_threaded(cls, row):
        cls.begun[row._meta.model_name, row.pk] = time.monotonic()
        threading.Event().wait(0.001)
        return cls.done

    @classmethod
    async def handle_awaited(cls, row):
        cls.begun[row._meta.model_name, row.pk] = time.monotonic()
        await asyncio.sleep(0.001)
        return cls.done

    @classmethod
    async def handle_narrow(cls, row):
        return await cls.handle_awaited(row)


class Crowd(StatorModel):
    """There are very many of these."""

    state = StateField(CrowdGraph)


class Guest(StatorModel):
    """There is one of these."""

    state = StateField(CrowdGraph)
