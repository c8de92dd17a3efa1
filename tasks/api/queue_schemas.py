"""Schemas of queues: rules and pauses. As in :mod:`tasks.api.schemas`, durations are in seconds."""

from datetime import datetime
from typing import Annotated

from ninja import Schema
from pydantic import AwareDatetime, Field

from tasks.api.schemas import Body, Count, Seconds, SecondsOrNone, showing
from tasks.models import Queue
from tasks.queue.actions import MAX_LISTED

Action = Annotated[str, Field(min_length=1, max_length=200)]


class QueueSettings(Body):
    """Rules for tasks that set no value of their own; null: the project's setting."""

    lease: Seconds | None = Field(None, description="How long a claim holds without a heartbeat.", examples=[60])
    timeout: Seconds | None = Field(None, description="Time limit of an attempt, heartbeats or not.", examples=[None])
    invisible_for: SecondsOrNone | None = Field(
        None, description="Seconds until a new task can be claimed.", examples=[0]
    )
    max_attempts: Count | None = Field(
        None, description="Claims without success until a task is errored.", examples=[5]
    )
    retention: SecondsOrNone | None = Field(
        None, description="How long a task is stored after it has ended.", examples=[604800]
    )
    failed_retention: SecondsOrNone | None = Field(None, description="The same for errored tasks.", examples=[2592000])
    same_worker_again: bool = Field(
        False, description="Whether a worker may claim a task again that it gave up.", examples=[False]
    )
    worker_retries: int | None = Field(
        None,
        ge=0,
        le=32767,
        description="Without same_worker_again: how often it may all the same. Null: a named worker never; a worker "
        "process leaves the task to others first, and then tries it again.",
        examples=[None],
    )
    actions_elsewhere: bool = Field(
        False, description="Whether external programs serve it, so that it accepts any action.", examples=[True]
    )
    http_actions: list[Action] = Field(
        [],
        max_length=MAX_LISTED,
        description="The site's own actions that may be published over HTTP. Over HTTP, names can only be removed.",
        examples=[[]],
    )
    one_per_worker: bool = Field(
        False, description="Whether a worker may hold only one task at a time.", examples=[False]
    )


class QueueIn(QueueSettings):
    """A queue to create. Its kind, its exclusive key and ``spread`` cannot be changed later."""

    name: str = Field(
        min_length=1, max_length=100, pattern=r"^\w[\w.:-]*$", examples=["encode"], description="Its name."
    )
    kind: Queue.Kind = Field(
        Queue.Kind.SIMPLE,
        description="Whether at most one task runs for each value of the exclusive key.",
        examples=["exclusive"],
    )
    exclusive_key: str = Field(
        "", max_length=100, description="At most one task runs for each value of this metadata.", examples=["title"]
    )
    spread: bool = Field(
        False, description="Whether its tasks are in all parts of a table of tasks that is divided.", examples=[False]
    )


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

    deleted: str = Field(description="Its name.", examples=["encode"])
    tasks: int = Field(description="How many tasks were deleted with it.", examples=[0])


class PauseIn(Body):
    """The new pauses of a queue, which replace the old ones; an empty object resumes it."""

    publish: bool = Field(False, description="Refuse new tasks; workers go on.", examples=[False])
    claim: bool = Field(False, description="Let no tasks be claimed; running tasks may finish.", examples=[True])
    reason: str = Field("", max_length=200, examples=["the disk is full"])
    until: AwareDatetime | None = Field(
        None, description="When the pauses end by themselves.", examples=["2030-01-31T12:00:00Z"]
    )
