"""Schemas of managed objects."""

from datetime import datetime

from ninja import Schema
from pydantic import Field

from stator.models import StatorModel, shown_key, state_field, state_name
from tasks.api.schemas import MAX_ON_PAGE, ProgressOut, ReasonOut, described, parameter


class ObjectFilters(Schema):
    """Filters for the objects of a model, and the page."""

    state: list[str] = parameter("Objects in this state; repeat it for several.", ["submitted"], [])
    after: str = parameter("The `next` of the previous page.", "17", "", max_length=255)
    limit: int = parameter("Maximum number on a page.", 100, 100, ge=1, le=MAX_ON_PAGE)


class ObjectOut(Schema):
    """Where an object is."""

    model: str = Field(examples=["shop.Order"])
    pk: str = described("The primary key as text.", "17")
    state: str = described("The name of its state.", "submitted")
    value: int | str | None = described("What its column has for the state: the name, unless states have values.", 20)
    since: datetime = Field(description="When it entered the state.")
    due: datetime | None = Field(description="When it is attempted next; null means now, or never by a worker.")
    attempts: int = described("Attempts since it entered the state.", 0)
    failures: int = described("Errors in a row.", 0)
    claimed: bool = described("Whether a worker attempts it now.", False)
    progress: ProgressOut | None = Field(description="How far its attempt is; null if it has not said so.")


class ObjectsOut(Schema):
    """A page of objects in the order of their keys."""

    objects: list[ObjectOut]
    next: str | None = Field(description="Send it as `after` for the next page; null on the last one.")


class HappenedOut(Schema):
    """A move, an error, an action by hand, an event, or another attempt that logged something."""

    at: datetime
    kind: str = described("move, error, hand, event or wait.", "move")
    source: str = described("The state before.", "submitted")
    to: str = described("The state that it moved to; empty if it did not move.", "approved")
    actor: str = described("Who did it; empty for a worker.", "ann")
    reason: str = Field(examples=['approve {"note": "ok"}'])
    error: str = described("Type and message.", "")
    log: str | None = described("What the attempt logged, for models with `logs`.", None)


class ObjectErrorOut(Schema):
    """The latest error of an object."""

    at: datetime
    state: str = Field(examples=["approved"])
    error: str = described("Type of the exception.", "TimeoutError")
    message: str = Field(examples=["the bank does not answer"])
    times: int = described("How often in a row.", 3)
    log: str | None = Field(description="The last lines that the attempt logged; null if none.")


class AwaitedOut(Schema):
    """An event that the object takes now and that this token may send."""

    name: str = Field(examples=["approve"])
    to: str = described("The state that it leads to; empty if it makes the object ready.", "approved")
    count: int = described("How many different senders it takes.", 1)


class StepOut(Schema):
    """A durable step that an attempt has done, which further attempts do not repeat."""

    name: str = Field(examples=["charge"])
    at: datetime
    attempt: int = described("The attempt that did it.", 1)


class ObjectWithHistoryOut(ObjectOut):
    """An object with the reasons why it does not move, its error, its events, its steps, and its history."""

    reasons: list[ReasonOut]
    error: ObjectErrorOut | None = Field(
        description="The latest one, until an attempt gives a reason to wait, or null."
    )
    events: list[AwaitedOut]
    available: list[str] = described("The events that this token may send now.", ["approve"])
    steps: list[StepOut] = Field(description="The steps that are done in its state, in order.")
    history: list[HappenedOut]


def object_out(row: StatorModel) -> dict[str, object]:
    """Return an object in the form of :class:`ObjectOut`."""
    return {
        "model": row._meta.label, "pk": shown_key(row.pk), "state": state_name(row),
        "value": getattr(row, state_field(type(row)).attname), "since": row.state_changed,
        "due": row.state_next_attempt, "attempts": row.state_attempts, "failures": row.state_failures,
        "claimed": row.state_claim is not None, "progress": row.__dict__.get("looked_up_progress"),
    }  # fmt: skip
