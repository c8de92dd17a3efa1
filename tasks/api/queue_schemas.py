"""Schemas of queues: rules and pauses. As in :mod:`tasks.api.schemas`, durations are in seconds."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from ninja import Schema
from pydantic import AwareDatetime, Field

from tasks.api.schemas import Body, Definition, described, showing, with_fields
from tasks.models import Queue
from tasks.queue.actions import MAX_LISTED
from tasks.queue.rules import RULES, QueueRule

Action = Annotated[str, Field(min_length=1, max_length=200)]


def _field_of(rule: QueueRule) -> Definition:
    own: dict[str, Any] = {"description": rule.says, "examples": [rule.example]}
    if rule.is_number:
        kind: Any = Annotated[rule.kind, Field(ge=rule.least, le=rule.most)]
        return kind | None, Field(None, **own)
    if rule.kind is bool:
        return bool, Field(False, **own)
    own["description"] += " Over HTTP, names can only be removed."
    return list[Action], Field([], max_length=MAX_LISTED, **own)


@partial(with_fields, {name: _field_of(rule) for name, rule in RULES.items()})
class QueueSettings(Body):
    """Rules for tasks that set no value of their own; null: the project's setting."""


class QueueIn(QueueSettings):
    """A queue to create. Its kind, its exclusive key and ``spread`` cannot be changed later."""

    name: str = described("Its name.", "encode", min_length=1, max_length=100, pattern=r"^\w[\w.:-]*$")
    kind: Queue.Kind = described(
        "Whether at most one task runs for each value of the exclusive key.", "exclusive", Queue.Kind.SIMPLE
    )
    exclusive_key: str = described(
        "At most one task runs for each value of this metadata.", "title", "", max_length=100
    )
    spread: bool = described("Whether its tasks are in all parts of a table of tasks that is divided.", False, False)


@showing(QueueIn)
class QueueOut(Schema):
    """A queue."""

    name: str = Field(examples=["encode"])
    publish_paused: bool = Field(examples=[False])
    claim_paused: bool = Field(examples=[False])
    pause_reason: str = Field(examples=[""])
    pause_author: str = Field(examples=[""])
    pause_until: datetime | None = Field(examples=[None])
    created: datetime = Field(examples=["2030-01-31T12:00:00Z"])


class QueuesOut(Schema):
    """A page of queues; ``next`` goes into ``after`` for the next page."""

    queues: list[QueueOut]
    next: str | None = Field(examples=[None])


class DeletedOut(Schema):
    """The queue that was deleted."""

    deleted: str = described("Its name.", "encode")
    tasks: int = described("How many tasks were deleted with it.", 0)


class PauseIn(Body):
    """The new pauses of a queue, which replace the old ones; an empty object resumes it."""

    publish: bool = described("Refuse new tasks; workers go on.", False, False)
    claim: bool = described("Let no tasks be claimed; running tasks may finish.", True, False)
    reason: str = Field("", max_length=200, examples=["the disk is full"])
    until: AwareDatetime | None = described("When the pauses end by themselves.", "2030-01-31T12:00:00Z", None)
