"""Schemas of request and response bodies. Durations are in seconds; times are ISO 8601 with a time zone."""

import dataclasses
import json
from collections.abc import Callable
from datetime import datetime
from functools import partial, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field, JsonValue, create_model

from stator.graph.backoff import MAX_SECONDS
from stator.texts import JsonObject
from tasks.messages import OPTIONS

BIGINT = 2**63 - 1
MAX_IN_BULK, MAX_ON_PAGE, MAX_CLAIMED = 10_000, 500, 1000

Seconds = Annotated[float, Field(ge=0.05, le=MAX_SECONDS, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=8000)]
Worker = Annotated[str, Field(min_length=1, max_length=100)]
Metadata = dict[Annotated[str, Field(min_length=1, max_length=200)], str | int | float | bool]
TaskNumber = Annotated[int, Field(ge=1, le=BIGINT)]

# An example of a claim.
TOKEN = "0191a3c5-6f0e-8a10-9c1b-52ab1be3a6c9"
A_CLAIM = {"task": 17, "token": TOKEN}

Item = TypeVar("Item")
OfClaims = Annotated[list[Item], Field(min_length=1, max_length=MAX_CLAIMED)]
SchemaT = TypeVar("SchemaT", bound=Schema)
# The type of a field, and the rest of its definition.
Definition = tuple[Any, Any]

# The options of a task that JSON has in another form than Python, or that are null by default: type and default.
JSON_FORMS: dict[str, Definition] = {
    "data": (JsonValue, None),
    "metadata": (Metadata, {}),
    "priority": (int | None, None),
    "worker_ids": (list[Worker], []),
}


def parameter(says: str, example: JsonValue, default: object = None, **limits: Any) -> Any:
    """Return a parameter of a query string, with its documentation."""
    return Field(default, description=says, json_schema_extra={"example": example}, **limits)


def described(says: str, example: object, default: Any = ..., **limits: Any) -> Any:
    """Return a value of a body, with its documentation."""
    return Field(default, description=says, examples=[example], **limits)


class Page(Schema):
    """The part of a list that an answer has."""

    after: int = parameter("The `next` of the previous page.", 0, 0, ge=0, le=BIGINT)
    limit: int = parameter("Maximum number on a page.", 100, 100, ge=1, le=MAX_ON_PAGE)


def tell_defaults(schema: JsonObject) -> None:
    """Move the defaults of a body into the descriptions of its fields.

    Generated clients require a field that has a default, or send the default. Only what is left out stays as it is.
    """
    for each in schema.get("properties", {}).values():
        default = each.pop("default", None)
        if default is not None:
            says = [each["description"]] if "description" in each else []
            each["description"] = " ".join([*says, f"Default: {json.dumps(default)}."])


class Body(Schema):
    """A request body; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=tell_defaults)


def with_options(says: str, *only: str) -> Callable[[type[SchemaT]], type[SchemaT]]:
    """Return a decorator that adds the options of a task to a schema of input, all or ``only`` these.

    ``says``: the name of their documentation; options without it are left out.
    """
    given = {name: each for name, each in OPTIONS.items() if name in (only or OPTIONS) and each.metadata[says]}
    return partial(with_fields, {name: _input(option, option.metadata[says]) for name, option in given.items()})


def _input(option: dataclasses.Field[Any], says: str) -> Definition:
    default = ... if option.default is dataclasses.MISSING else option.default
    kind, default = JSON_FORMS.get(option.name, (option.type, default))
    about = option.metadata
    return kind, described(says, about["example"], default, **about["limits"])


def showing(schema: type[Schema], *without: str) -> Callable[[type[SchemaT]], type[SchemaT]]:
    """Return a decorator that adds the fields of a schema of input to a schema of output, without their constraints.

    Fields that the decorated schema has itself stay as they are.
    """
    fields = {name: each for name, each in schema.model_fields.items() if name not in without}
    return partial(
        with_fields, {name: (_plain(each.annotation), Field(examples=each.examples)) for name, each in fields.items()}
    )


def with_fields(fields: dict[str, Definition], schema: type[SchemaT]) -> type[SchemaT]:
    """Return a schema with further fields; fields that it has itself stay as they are."""
    new: dict[str, Any] = {name: each for name, each in fields.items() if name not in schema.model_fields}
    return create_model(schema.__name__, __base__=schema, __module__=schema.__module__, __doc__=schema.__doc__, **new)


def _plain(kind: Any) -> Any:
    """Return a type without its constraints."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _plain(arguments[0])
    if isinstance(kind, type) and issubclass(kind, str):
        return str
    plain = tuple(map(_plain, arguments))
    return reduce(or_, plain) if origin is UnionType else origin[plain] if origin else kind


@with_options("says")
class TaskIn(Body):
    """A task to publish. Missing values come from the queue, or else from the settings."""


@with_options("changes")
class TaskChange(Body):
    """Options of a task to change, even while a worker holds it; those not given stay, null is the queue's value."""


class OnExistingKeyIn(Body):
    """What to do if the queue already has a task with this key."""

    update: bool = described("Write the given parameters into a waiting task, and move its start.", False, False)
    clear_failed: bool = described("Forget the workers that did not succeed, so that it runs again.", False, False)
    clear_succeeded: bool = described("Forget the workers that succeeded, so that it runs again.", False, False)


class ProgressOut(Schema):
    """How far an attempt is."""

    done: float = Field(examples=[40])
    total: float | None = described("null: not known.", 100)
    percent: int | None = described("From 0 to 100; null without a total.", 40)
    text: str = Field(examples=["page 40 of 100"])


@showing(TaskIn, "invisible_for", "retention")
class TaskOut(Schema):
    """A task."""

    id: int = Field(examples=[17])
    queue: str = Field(examples=["encode"])
    status: str = described("invisible, pending, running, completed, canceled or errored.", "pending")
    priority: int = Field(examples=[1661990400000])
    metadata: dict[str, Any] = Field(examples=[{"title": "abc"}])
    attempts: int = described("Claims since it was published or requeued.", 0)
    lease: float | None = described("Its own lease; null: that of its queue.", 30)
    timeout: float | None = described("Its own time limit; null: that of its queue.", 600)
    claimant: str | None = described(
        "The named worker that holds it; null while it is not held, or if a worker process holds it.", "bot-1"
    )
    claimed_at: datetime | None = described(
        "When its holder claimed it; null while it is not held.", "2030-01-31T12:00:00Z"
    )
    lease_until: datetime | None = described(
        "When the claim ends without a heartbeat; null while it is not held.", "2030-01-31T12:00:30Z"
    )
    progress: ProgressOut | None = described(
        "How far its holder is; null if the holder has not said so, and in answers that publish or claim.", None
    )
    batch: int | None = described("The batch that it belongs to.", None)  # tasks.extensions.batches
    whole: int | None = described("The shared task that it is a part of.", None)  # tasks.extensions.shared
    result: JsonValue = Field(examples=[None])
    created: datetime = Field(examples=["2030-01-31T12:00:00Z"])
    due: datetime | None = described("When it can be claimed; null: now or unknown.", None)


class RunOut(Schema):
    """One claim of a task by a worker."""

    worker: str = Field(examples=["bot-1"])
    claimed: datetime = Field(examples=["2030-01-31T12:00:00Z"])
    lease_until: datetime = Field(examples=["2030-01-31T12:01:00Z"])
    ended: datetime | None = Field(examples=[None])
    outcome: str = described("succeeded, failed, released, canceled, waited or lost; empty while it has not ended.", "")
    timed_out: bool = Field(examples=[False])
    reason: str = Field(examples=[""])
    unexpected_errors: int = described("Errors after which the worker tried again, or gave up.", 0)
    result: JsonValue = Field(examples=[None])


class TaskWithRunsOut(TaskOut):
    """A task with its latest runs and its errors."""

    rejected_by: list[str] = described("The named workers that gave up or lost the task, in order.", ["bot-1"])
    errors: list[str] = described(
        "The errors since it was published or requeued, each after the name of its worker.",
        ["bot-1: image 7 is truncated"],
    )
    log: str | None = Field(description="The last lines that the latest failed attempt of a worker process logged.")
    runs: list[RunOut]


class PublishedOut(Schema):
    """The outcome of a publication."""

    outcome: str = described(
        "inserted; if the key exists: matched (it waits), running or duplicate (it has ended).", "inserted"
    )
    task: TaskOut


class TasksOut(Schema):
    """A page of tasks; ``next`` goes into ``after`` for the next page."""

    tasks: list[TaskOut]
    next: str | None = Field(examples=["17"])


class ClaimIn(Body):
    """The tasks to claim, and the worker."""

    worker: Worker = described("Name of the worker that runs the tasks.", "bot-1")
    limit: int = described("Maximum number of tasks.", 10, 1, ge=1, le=MAX_CLAIMED)
    lease: Seconds | None = described("How long the claims hold without a heartbeat.", 30, None)
    metadata: Metadata = described("Only tasks with all of these values.", {"title": "abc"}, {})
    wait: float = described("Seconds to wait for a task, at most API_WAIT.", 20, 0, ge=0, le=3600)

    def of_claim(self) -> JsonObject:
        """Return the arguments of ``queue.claim``, which does not wait."""
        return self.dict(exclude={"wait"})


class ClaimOut(Schema):
    """A claimed task. Every further request for the claim needs the token."""

    token: UUID = Field(examples=[TOKEN])
    attempt: int = described("Number of the attempt, from 1.", 1)
    lease: float = described("Seconds until the lease expires.", 30)
    task: TaskOut


class ClaimsOut(Schema):
    """The claims; empty if there is nothing to claim."""

    claims: list[ClaimOut]
    waited: float = described("Seconds that the request waited before the claim.", 0)


class HeldIn(Body):
    """Proof of a claim."""

    token: UUID = described("The token of the claim.", TOKEN)


class ProgressIn(Body):
    """How far the work is."""

    done: float = Field(ge=0, allow_inf_nan=False, examples=[40])
    total: float | None = described("null: not known.", 100, None, gt=0, allow_inf_nan=False)
    text: Text = described("The first 200 characters are shown.", "page 40 of 100", "")


class HeldProgressIn(HeldIn, ProgressIn):
    """The token, and how far the work is."""


class StepIn(HeldIn):
    """The token, and the result of a step, as JSON."""

    result: JsonValue = Field(None, examples=[{"receipt": "r-17"}])


class StepDoneOut(Schema):
    """A durable step that a claim has done, with its result."""

    name: str = Field(examples=["charge"])
    result: JsonValue = Field(examples=[{"receipt": "r-17"}])
    at: datetime
    attempt: int = described("The attempt that did it.", 1)


class StepsOut(Schema):
    """The durable steps of a task that its claims have done since it was published or requeued, in order."""

    steps: list[StepDoneOut]


class HeartbeatIn(HeldIn):
    """The token, the new lease, and how far the work is."""

    lease: Seconds | None = described("Seconds from now; default: as requested last, else that of the task.", 30, None)
    progress: ProgressIn | None = Field(None, description="How far the work is; null: as before.")
    unexpected: bool = described("Count an unexpected error after which the worker tries again.", False, False)


class ReasonIn(HeldIn):
    """The reason for giving up the claim."""

    reason: Text = Field("", examples=["no graphics card"])


class ReleaseIn(ReasonIn):
    """The reason, and whether the work has begun."""

    begun: bool = described("false: as if the task had never been claimed; no attempt counts.", True, True)


class FailIn(HeldIn):
    """The error of the attempt."""

    error: Text = Field(min_length=1, examples=["image 7 is truncated"])


class ResolveIn(HeldIn):
    """The task's result, as JSON."""

    result: JsonValue = Field(None, examples=[{"ok": True}])


class KeptIn(HeldIn):
    """One of many claims, with its task."""

    task: TaskNumber = described("The number of the task.", 17)


class EndIn(KeptIn, ResolveIn):
    """One of many claims, with its task and result."""


class ResolveManyIn(Body):
    """Claims to end."""

    claims: OfClaims[EndIn] = Field(examples=[[{**A_CLAIM, "result": {"ok": True}}]])


class FailedIn(KeptIn, FailIn):
    """One of many claims, with its task and error."""


class FailManyIn(Body):
    """Claims to end."""

    claims: OfClaims[FailedIn] = Field(examples=[[{**A_CLAIM, "error": "image 7 is truncated"}]])


class EndOut(Schema):
    """The outcome for one claim."""

    task: int = Field(examples=[17])
    outcome: str = described(
        "completed, or failed; lease_lost if the claim has ended: nothing was changed.", "completed"
    )


class EndedManyOut(Schema):
    """One result for each claim, in the order of the claims."""

    results: list[EndOut]


class HeartbeatManyIn(Body):
    """Claims to extend, and the new lease."""

    claims: OfClaims[KeptIn] = Field(examples=[[A_CLAIM]])
    lease: Seconds | None = described("Seconds from now; default: as at the last request, or the task's.", 30, None)


class KeptOut(Schema):
    """The outcome for one claim."""

    task: int = Field(examples=[17])
    outcome: str = described("held; or lease_lost: the claim has ended.", "held")
    lease: float | None = described("Seconds until the lease expires; null if it is lost.", 30)


class HeldManyOut(Schema):
    """One result for each claim, in the order of the claims."""

    results: list[KeptOut]


class ReasonOut(Schema):
    """One reason why a task is not moving."""

    code: str = described("For programs; it does not change.", "claim_paused")
    sentence: str = Field(examples=["Nothing of queue encode is claimed: paused by ann."])
    numbers: dict[str, Any] = described("The values in the sentence.", {"author": "ann"})
    remedy: str = described("What to do; empty if nothing needs to be done.", "Resume the queue.")


class ExplainedOut(Schema):
    """Why a task is not moving, the most decisive reason first."""

    task: int = Field(examples=[17])
    status: str = Field(examples=["pending"])
    reasons: list[ReasonOut]


class HeldOut(Schema):
    """A claim that is still held, and the current values of its task."""

    lease: float = described("Seconds until the lease expires.", 30)
    heartbeat_interval: float | None = described("Seconds until the next heartbeat.", 10)
    max_unexpected_retries: int | None = Field(examples=[2])
    unexpected_errors: int = described("Unexpected errors of this worker; 0 until one is counted in this claim.", 0)


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
