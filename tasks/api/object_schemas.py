"""Schemas of managed objects, and of the events that are sent to them."""

from datetime import datetime
from typing import Any

from ninja import Schema
from pydantic import Field, JsonValue

from tasks.api.schemas import MAX_ON_PAGE, Body, ProgressOut, ReasonOut, parameter


class ObjectFilters(Schema):
    """Filters for the objects of a model, and the page."""

    state: list[str] = parameter("Objects in this state; repeat it for several.", ["submitted"], [])
    after: str = parameter("The `next` of the previous page.", "17", "", max_length=255)
    limit: int = parameter("Maximum number on a page.", 100, 100, ge=1, le=MAX_ON_PAGE)


class ObjectOut(Schema):
    """Where an object is."""

    model: str = Field(examples=["shop.Order"])
    pk: str = Field(description="The primary key as text.", examples=["17"])
    state: str = Field(examples=["submitted"])
    since: datetime = Field(description="When it entered the state.")
    due: datetime | None = Field(description="When it is attempted next; null means now, or never by a worker.")
    attempts: int = Field(description="Attempts since it entered the state.", examples=[0])
    failures: int = Field(description="Errors in a row.", examples=[0])
    claimed: bool = Field(description="Whether a worker attempts it now.", examples=[False])
    progress: ProgressOut | None = Field(description="How far its attempt is; null if it has not said so.")


class ObjectsOut(Schema):
    """A page of objects in the order of their keys."""

    objects: list[ObjectOut]
    next: str | None = Field(description="Send it as `after` for the next page; null on the last one.")


class HappenedOut(Schema):
    """A move, an error, an action by hand, an event, or another attempt that logged something."""

    at: datetime
    kind: str = Field(description="move, error, hand, event or wait.", examples=["move"])
    source: str = Field(description="The state before.", examples=["submitted"])
    to: str = Field(description="The state that it moved to; empty if it did not move.", examples=["approved"])
    actor: str = Field(description="Who did it; empty for a worker.", examples=["ann"])
    reason: str = Field(examples=['approve {"note": "ok"}'])
    error: str = Field(description="Type and message.", examples=[""])
    log: str | None = Field(description="What the attempt logged, for models with `logs`.", examples=[None])


class ObjectErrorOut(Schema):
    """The latest error of an object."""

    at: datetime
    state: str = Field(examples=["approved"])
    error: str = Field(description="Type of the exception.", examples=["TimeoutError"])
    message: str = Field(examples=["the bank does not answer"])
    times: int = Field(description="How often in a row.", examples=[3])
    log: str | None = Field(description="The last lines that the attempt logged; null if none.")


class AwaitedOut(Schema):
    """An event that the object takes now and that this token may send."""

    name: str = Field(examples=["approve"])
    to: str = Field(
        description="The state that it leads to; empty if it makes the object ready.", examples=["approved"]
    )
    count: int = Field(description="How many different senders it takes.", examples=[1])


class StepOut(Schema):
    """A durable step that an attempt has done, which further attempts do not repeat."""

    name: str = Field(examples=["charge"])
    at: datetime
    attempt: int = Field(description="The attempt that did it.", examples=[1])


class ObjectWithHistoryOut(ObjectOut):
    """An object with the reasons why it does not move, its error, its events, its steps, and its history."""

    reasons: list[ReasonOut]
    error: ObjectErrorOut | None = Field(
        description="The latest one, until an attempt gives a reason to wait, or null."
    )
    events: list[AwaitedOut]
    steps: list[StepOut] = Field(description="The steps that are done in its state, in order.")
    history: list[HappenedOut]


class EventIn(Body):
    """What an event carries."""

    payload: JsonValue = Field(None, description="Validated by the form of the event.", examples=[{"note": "ok"}])
    key: str = Field(
        "", max_length=100, description="A key that the object has had changes nothing.", examples=["mail-17"]
    )


class SentOut(Schema):
    """What became of an event, and the object after it."""

    outcome: str = Field(description="moved, ready, counted, kept or repeated.", examples=["moved"])
    missing: int = Field(description="How many further senders it takes.", examples=[0])
    object: ObjectOut


def object_out(row: Any) -> dict[str, object]:
    """Return an object in the form of :class:`ObjectOut`."""
    return {
        "model": row._meta.label, "pk": str(row.pk), "state": row.state, "since": row.state_changed,
        "due": row.state_next_attempt, "attempts": row.state_attempts, "failures": row.state_failures,
        "claimed": row.state_claim is not None, "progress": row.__dict__.get("looked_up_progress"),
    }  # fmt: skip
