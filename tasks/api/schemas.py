"""Schemas of request and response bodies. Durations are in seconds; times are ISO 8601 with a time zone."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field, JsonValue

from stator.graph.backoff import MAX_SECONDS
from tasks.models import Run, Task

BIGINT = 2**63 - 1
MAX_IN_BULK, MAX_ON_PAGE, MAX_CLAIMED = 10_000, 500, 1000

Seconds = Annotated[float, Field(ge=0.05, le=MAX_SECONDS, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Text = Annotated[str, Field(max_length=8000)]
Worker = Annotated[str, Field(min_length=1, max_length=100)]
Metadata = dict[Annotated[str, Field(min_length=1, max_length=200)], JsonValue]


class Body(Schema):
    """A request body; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class TaskIn(Body):
    """A task to publish. Missing values come from the queue, or else from the settings."""

    action: str = Field(min_length=1, max_length=200, description="The name of the action.", examples=["resize"])
    data: JsonValue = Field(None, description="The input of the action, as JSON.", examples=[{"image": 7}])
    key: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A queue has at most one task for each key.",
        examples=["image-7"],
    )
    priority: int | None = Field(
        None,
        ge=-BIGINT - 1,
        le=BIGINT,
        description="Smaller is sooner; by default the current Unix time in ms.",
        examples=[1],
    )
    metadata: Metadata = Field({}, description="Names and values to claim and search by.", examples=[{"title": "abc"}])
    lease: Seconds | None = Field(None, description="How long a claim holds without a heartbeat.", examples=[30])
    timeout: Seconds | None = Field(None, description="Time limit of an attempt, heartbeats or not.", examples=[600])
    invisible_for: SecondsOrNone | None = Field(None, description="Seconds until it can be claimed.", examples=[0])
    max_attempts: Count | None = Field(None, description="Claims without success until it is errored.", examples=[3])
    retention: SecondsOrNone | None = Field(
        None, description="How long it is stored after it has ended.", examples=[86400]
    )
    heartbeat_interval: Seconds | None = Field(
        None, description="Seconds between heartbeats of its holder; default: a third of the lease.", examples=[10]
    )
    max_unexpected_retries: int | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="Unexpected errors that one worker retries by itself; default: as many as the worker likes.",
        examples=[2],
    )
    worker_ids: list[Worker] = Field(
        [], max_length=1000, description="Only these workers may claim it; empty: any.", examples=[["bot-1"]]
    )
    worker_count: int = Field(1, ge=1, le=1000, description="Number of workers that run it, each once.", examples=[1])


class TaskChange(Body):
    """Options of a task to change, even while a worker holds it; those not given stay, null is the queue's value."""

    worker_ids: list[Worker] = Field(
        [], max_length=1000, description="From the next heartbeat: another holder loses it.", examples=[["bot-1"]]
    )
    timeout: Seconds | None = Field(None, description="From the next heartbeat; see the guide.", examples=[600])
    heartbeat_interval: Seconds | None = Field(None, description="From the next heartbeat.", examples=[10])
    lease: Seconds | None = Field(None, description="From the next heartbeat.", examples=[30])
    max_attempts: Count | None = Field(None, description="When the claim ends.", examples=[3])
    max_unexpected_retries: int | None = Field(
        None, ge=0, le=1_000_000, description="From the next heartbeat.", examples=[2]
    )
    priority: int | None = Field(None, ge=-BIGINT - 1, le=BIGINT, description="At the next claim.", examples=[1])
    retention: SecondsOrNone | None = Field(None, description="Once it has ended.", examples=[86400])


class OnExistingKeyIn(Body):
    """What to do if the queue already has a task with this key."""

    update: bool = Field(False, description="Write the given parameters into a waiting task.", examples=[False])
    clear_failed: bool = Field(
        False, description="Forget the workers that did not succeed, so that it runs again.", examples=[False]
    )
    clear_succeeded: bool = Field(
        False, description="Forget the workers that succeeded, so that it runs again.", examples=[False]
    )


class PublishIn(TaskIn, OnExistingKeyIn):
    """A task to publish."""


class PublishManyIn(OnExistingKeyIn):
    """Tasks to publish, all or none of them."""

    tasks: list[TaskIn] = Field(
        min_length=1, max_length=MAX_IN_BULK, examples=[[{"action": "resize", "data": {"image": 7}}]]
    )


class TaskOut(Schema):
    """A task."""

    id: int = Field(examples=[17])
    queue: str = Field(examples=["encode"])
    action: str = Field(examples=["resize"])
    data: JsonValue = Field(examples=[{"image": 7}])
    key: str | None = Field(examples=["image-7"])
    status: str = Field(
        description="invisible, pending, running, completed, canceled or errored.", examples=["pending"]
    )
    priority: int = Field(examples=[1661990400000])
    metadata: dict[str, Any] = Field(examples=[{"title": "abc"}])
    attempts: int = Field(description="Claims since it was published or requeued.", examples=[0])
    max_attempts: int | None = Field(examples=[3])
    lease: float | None = Field(description="Its own lease; null: that of its queue.", examples=[30])
    timeout: float | None = Field(description="Its own time limit; null: that of its queue.", examples=[600])
    claimant: str | None = Field(
        description="The named worker that holds it; null while it is not held, or if a worker process holds it.",
        examples=["bot-1"],
    )
    claimed_at: datetime | None = Field(
        description="When its holder claimed it; null while it is not held.", examples=["2030-01-31T12:00:00Z"]
    )
    lease_until: datetime | None = Field(
        description="When the claim ends without a heartbeat; null while it is not held.",
        examples=["2030-01-31T12:00:30Z"],
    )
    heartbeat_interval: float | None = Field(examples=[10])
    max_unexpected_retries: int | None = Field(examples=[2])
    worker_ids: list[str] = Field(examples=[[]])
    worker_count: int = Field(examples=[1])
    whole: int | None = Field(description="The shared task that it is a part of.", examples=[None])
    result: JsonValue = Field(examples=[None])
    created: datetime = Field(examples=["2030-01-31T12:00:00Z"])
    due: datetime | None = Field(description="When it can be claimed; null: now or unknown.", examples=[None])

    @staticmethod
    def resolve_queue(task: Task) -> str:
        """The name of its queue."""
        return task.queue.name

    @staticmethod
    def resolve_attempts(task: Task) -> int:
        """The attempts; for a page of tasks, those of ended tasks were counted in one query."""
        counted = getattr(task, "counted", None)
        return int(task.attempts if counted is None else counted)

    @staticmethod
    def resolve_claimant(task: Task) -> str | None:
        """The holder; for a page of tasks, all were read in one query."""
        claimant: str | None = task.looked_up_claimant if hasattr(task, "looked_up_claimant") else task.claimant
        return claimant

    @staticmethod
    def resolve_lease_until(task: Task) -> datetime | None:
        """The end of the lease."""
        return task.state_locked_until

    @staticmethod
    def resolve_whole(task: Task) -> int | None:
        """The number of the shared task."""
        return task.whole_id

    @staticmethod
    def resolve_due(task: Task) -> datetime | None:
        """When it can be claimed; None: now or unknown."""
        return task.state_next_attempt


class RunOut(Schema):
    """One claim of a task by a worker."""

    worker: str = Field(examples=["bot-1"])
    claimed: datetime = Field(examples=["2030-01-31T12:00:00Z"])
    lease_until: datetime = Field(examples=["2030-01-31T12:01:00Z"])
    ended: datetime | None = Field(examples=[None])
    outcome: str = Field(
        description="succeeded, failed, released or canceled; empty while it has not ended.", examples=[""]
    )
    timed_out: bool = Field(examples=[False])
    reason: str = Field(examples=[""])
    unexpected_errors: int = Field(description="Errors after which the worker tried again, or gave up.", examples=[0])
    result: JsonValue = Field(examples=[None])


class TaskWithRunsOut(TaskOut):
    """A task with its latest runs and its errors."""

    rejected_by: list[str] = Field(
        description="The named workers that gave up or lost the task, in order.", examples=[["bot-1"]]
    )
    errors: list[str] = Field(
        description="The errors since it was published or requeued, each after the name of its worker.",
        examples=[["bot-1: image 7 is truncated"]],
    )
    runs: list[RunOut]

    @staticmethod
    def resolve_runs(task: Task) -> list[Run]:
        """The latest runs."""
        return list(task.latest_runs)


class PublishedOut(Schema):
    """The outcome of a publication."""

    outcome: str = Field(
        description="inserted; if the key exists: matched (it waits), running or duplicate (it has ended).",
        examples=["inserted"],
    )
    task: TaskOut


class PublishedManyOut(Schema):
    """One result for each task, in the order of the tasks."""

    results: list[PublishedOut]


class TasksOut(Schema):
    """A page of tasks; ``next`` goes into ``after`` for the next page."""

    tasks: list[TaskOut]
    next: str | None = Field(examples=["17"])


class ClaimIn(Body):
    """The tasks to claim, and the worker."""

    worker: Worker = Field(description="Name of the worker that runs the tasks.", examples=["bot-1"])
    limit: int = Field(1, ge=1, le=MAX_CLAIMED, description="Maximum number of tasks.", examples=[10])
    lease: Seconds | None = Field(None, description="How long the claims hold without a heartbeat.", examples=[30])
    metadata: Metadata = Field({}, description="Only tasks with all of these values.", examples=[{"title": "abc"}])
    wait: float = Field(0, ge=0, le=3600, description="Seconds to wait for a task, at most API_WAIT.", examples=[20])

    def of_claim(self) -> dict[str, Any]:
        """Return the arguments of ``queue.claim``, which does not wait."""
        return self.dict(exclude={"wait"})


class ClaimOut(Schema):
    """A claimed task. Every further request for the claim needs the token."""

    token: UUID = Field(examples=["0191a3c5-6f0e-8a10-9c1b-52ab1be3a6c9"])
    attempt: int = Field(description="Number of the attempt, from 1.", examples=[1])
    lease: float = Field(description="Seconds until the lease expires.", examples=[30])
    task: TaskOut


class ClaimsOut(Schema):
    """The claims; empty if there is nothing to claim."""

    claims: list[ClaimOut]
    waited: float = Field(description="Seconds that the request waited before the claim.", examples=[0])


class HeldIn(Body):
    """Proof of a claim."""

    token: UUID = Field(description="The token of the claim.", examples=["0191a3c5-6f0e-8a10-9c1b-52ab1be3a6c9"])


class HeartbeatIn(HeldIn):
    """The token, and the new lease."""

    lease: Seconds | None = Field(
        None, description="Seconds from now; default: as requested last, else that of the task.", examples=[30]
    )
    unexpected: bool = Field(
        False, description="Count an unexpected error after which the worker tries again.", examples=[False]
    )


class ReasonIn(HeldIn):
    """The reason for giving up the claim."""

    reason: Text = Field("", examples=["no graphics card"])


class ReleaseIn(ReasonIn):
    """The reason, and whether the work has begun."""

    begun: bool = Field(
        True, description="false: as if the task had never been claimed; no attempt counts.", examples=[True]
    )


class FailIn(HeldIn):
    """The error of the attempt."""

    error: Text = Field(min_length=1, examples=["image 7 is truncated"])


class ResolveIn(HeldIn):
    """The task's result, as JSON."""

    result: JsonValue = Field(None, examples=[{"ok": True}])


class EndIn(ResolveIn):
    """One of many claims, with its task and result."""

    task: int = Field(ge=1, le=BIGINT, description="The number of the task.", examples=[17])


class ResolveManyIn(Body):
    """Claims to end."""

    claims: list[EndIn] = Field(
        min_length=1,
        max_length=MAX_CLAIMED,
        examples=[[{"task": 17, "token": "0191a3c5-6f0e-8a10-9c1b-52ab1be3a6c9", "result": {"ok": True}}]],
    )


class FailedIn(FailIn):
    """One of many claims, with its task and error."""

    task: int = Field(ge=1, le=BIGINT, description="The number of the task.", examples=[17])


class FailManyIn(Body):
    """Claims to end."""

    claims: list[FailedIn] = Field(
        min_length=1,
        max_length=MAX_CLAIMED,
        examples=[[{"task": 17, "token": "0191a3c5-6f0e-8a10-9c1b-52ab1be3a6c9", "error": "image 7 is truncated"}]],
    )


class EndOut(Schema):
    """The outcome for one claim."""

    task: int = Field(examples=[17])
    outcome: str = Field(
        description="completed, or failed; lease_lost if the claim has ended: nothing was changed.",
        examples=["completed"],
    )


class EndedManyOut(Schema):
    """One result for each claim, in the order of the claims."""

    results: list[EndOut]


class KeptIn(HeldIn):
    """One of many claims, with its task."""

    task: int = Field(ge=1, le=BIGINT, description="The number of the task.", examples=[17])


class HeartbeatManyIn(Body):
    """Claims to extend, and the new lease."""

    claims: list[KeptIn] = Field(
        min_length=1,
        max_length=MAX_CLAIMED,
        examples=[[{"task": 17, "token": "0191a3c5-6f0e-8a10-9c1b-52ab1be3a6c9"}]],
    )
    lease: Seconds | None = Field(
        None, description="Seconds from now; default: as at the last request, or the task's.", examples=[30]
    )


class KeptOut(Schema):
    """The outcome for one claim."""

    task: int = Field(examples=[17])
    outcome: str = Field(description="held; or lease_lost: the claim has ended.", examples=["held"])
    lease: float | None = Field(description="Seconds until the lease expires; null if it is lost.", examples=[30])


class HeldManyOut(Schema):
    """One result for each claim, in the order of the claims."""

    results: list[KeptOut]


class ReasonOut(Schema):
    """One reason why a task is not moving."""

    code: str = Field(description="For programs; it does not change.", examples=["claim_paused"])
    sentence: str = Field(examples=["Nothing of queue encode is claimed: paused by ann."])
    numbers: dict[str, Any] = Field(description="The values in the sentence.", examples=[{"author": "ann"}])
    remedy: str = Field(description="What to do; empty if nothing needs to be done.", examples=["Resume the queue."])


class ExplainedOut(Schema):
    """Why a task is not moving, the most decisive reason first."""

    task: int = Field(examples=[17])
    status: str = Field(examples=["pending"])
    reasons: list[ReasonOut]


class HeldOut(Schema):
    """A claim that is still held, and the current values of its task."""

    lease: float = Field(description="Seconds until the lease expires.", examples=[30])
    heartbeat_interval: float | None = Field(description="Seconds until the next heartbeat.", examples=[10])
    max_unexpected_retries: int | None = Field(examples=[2])
    unexpected_errors: int = Field(
        description="Unexpected errors of this worker; 0 until one is counted in this claim.", examples=[0]
    )


class EndedOut(Schema):
    """The task after its claim has ended."""

    task: TaskOut


class HealthOut(Schema):
    """The server and its database answer."""

    status: Literal["ok"] = Field(examples=["ok"])


class ErrorOut(Schema):
    """Why a request was refused: ``error`` is for programs and does not change, ``detail`` is for people."""

    error: str = Field(examples=["lease_lost"])
    detail: str = Field(examples=["this claim has ended, or its lease ran out; nothing was changed"])
