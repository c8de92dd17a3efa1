"""Schemas of queues: rules and pauses. As in :mod:`tasks.api.schemas`, durations are in seconds."""

from datetime import datetime
from typing import Annotated

from ninja import Schema
from pydantic import AwareDatetime, Field

from tasks.api.schemas import Body, Count, Seconds, SecondsOrNone
from tasks.models import Queue
from tasks.queue.actions import MOST_LISTED

Action = Annotated[str, Field(min_length=1, max_length=200)]


class QueueSettings(Body):
    """Rules for tasks that say nothing of their own; null: the project's setting."""

    lease: Seconds | None = Field(None, examples=[60])
    timeout: Seconds | None = Field(None, examples=[None])
    invisible_for: SecondsOrNone | None = Field(None, examples=[0])
    max_attempts: Count | None = Field(None, examples=[5])
    retention: SecondsOrNone | None = Field(None, examples=[604800])
    failed_retention: SecondsOrNone | None = Field(None, description="Of errored tasks.", examples=[2592000])
    same_worker_again: bool = Field(
        False, description="Whether a worker may claim a task again that it gave up.", examples=[False]
    )
    worker_retries: int = Field(0, ge=0, le=32767, description="If not: so many further claims.", examples=[0])
    actions_elsewhere: bool = Field(
        False, description="Whether programs elsewhere serve it, so that any name will do.", examples=[True]
    )
    http_actions: list[Action] = Field(
        [],
        max_length=MOST_LISTED,
        description="Actions in Python that may be published over HTTP. Here the list can only be made shorter.",
        examples=[[]],
    )
    one_per_worker: bool = Field(False, description="Whether a worker may hold one task at most.", examples=[False])


class QueueIn(QueueSettings):
    """A queue to make. Its kind and its exclusive key stay as they are made."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^\w[\w.:-]*$", examples=["encode"])
    kind: Queue.Kind = Field(Queue.Kind.SIMPLE, examples=["exclusive"])
    exclusive_key: str = Field(
        "", max_length=100, description="Of one value of this metadata at most one task runs.", examples=["title"]
    )


class QueueOut(Schema):
    """A queue."""

    name: str = Field(examples=["encode"])
    kind: str = Field(examples=["exclusive"])
    exclusive_key: str = Field(examples=["title"])
    lease: float | None = Field(examples=[60])
    timeout: float | None = Field(examples=[None])
    invisible_for: float | None = Field(examples=[0])
    max_attempts: int | None = Field(examples=[5])
    retention: float | None = Field(examples=[604800])
    failed_retention: float | None = Field(examples=[2592000])
    same_worker_again: bool = Field(examples=[False])
    worker_retries: int = Field(examples=[0])
    actions_elsewhere: bool = Field(examples=[True])
    http_actions: list[str] = Field(examples=[[]])
    one_per_worker: bool = Field(examples=[False])
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


class PauseIn(Body):
    """What is paused from now on, instead of what was; nothing, to resume."""

    publish: bool = Field(False, description="Publishers are refused; workers go on.", examples=[False])
    claim: bool = Field(False, description="Nothing is claimed; what runs may finish.", examples=[True])
    reason: str = Field("", max_length=200, examples=["the disk is full"])
    until: AwareDatetime | None = Field(
        None, description="It ends by itself then, if given.", examples=["2030-01-31T12:00:00Z"]
    )
