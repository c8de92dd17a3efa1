"""Models whose objects wait for events."""

from django import forms
from django.db import models

from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class ApproveForm(forms.Form):
    note = forms.CharField(max_length=20)
    amount = forms.DecimalField(required=False)


def is_submitter(expense, user):
    return expense.submitter == user.username


def one_of_two(payload):
    if payload not in ("cash", "card"):
        raise ValueError("pay by cash or card")
    return {"by": payload}


class ExpenseGraph(StateGraph):
    """Two approvals, then a payment that an event may hurry, then a receipt that may come early."""

    submitted = State(expect_within=3 * 86400)
    approved = State(try_interval=60)
    paid = State()
    rejected = State()
    escalated = State()
    closed = State()

    approving = {"permission": "testapp.change_expense", "form": ApproveForm, "unless": is_submitter, "count": 2}
    submitted.on("approve", **approving).to(approved)  # stator.extensions.events
    submitted.on("reject").to(rejected)  # stator.extensions.events
    submitted.times_out_to(escalated, seconds=7 * 86400)
    approved.on("hurry")  # stator.extensions.events
    approved.on("cancel").to(rejected)  # stator.extensions.events
    approved.transitions_to(paid)
    paid.on("receipt", keep_for=3600, form=one_of_two).to(closed)  # stator.extensions.events

    @classmethod
    def handle_approved(cls, expense):
        event = expense.stator.event
        expense.seen = f"{event.name} {event.payload} {event.sender}" if event else "no event"
        expense.save()
        if expense.waits and not (event and event.name == "hurry"):
            raise TryAgainLater(3600)
        return cls.paid


class Expense(StatorModel):
    state = StateField(ExpenseGraph)
    submitter = models.CharField(max_length=50, default="ina")
    waits = models.BooleanField(default=False)
    seen = models.CharField(max_length=200, blank=True)

    class StatorMeta:
        history = True


class PacketGraph(StateGraph):
    """Moved by asynchronous handlers, which read the event that brought it."""

    ordered = State()
    packed = State(try_interval=60)
    sent = State()
    ordered.on("pack").to(packed)  # stator.extensions.events
    packed.on("label")  # stator.extensions.events
    packed.transitions_to(sent)

    @classmethod
    async def handle_packed(cls, packet):
        packet.note = packet.stator.events[0].payload["note"]
        await packet.asave()
        return cls.sent


class Packet(StatorModel):
    state = StateField(PacketGraph)
    note = models.CharField(max_length=50, blank=True)
