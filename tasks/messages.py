"""Tasks as they are published, and their checks, which run before anything is written."""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from hashlib import sha256
from typing import Any

from stator import texts
from stator.graph.backoff import MAX_SECONDS
from stator.texts import WORKER_NAME, WORKER_NAME_RULE, nearest
from tasks.conf import DJANGO, TaskSettings
from tasks.exceptions import PublishRefused, TaskError

NAME_LENGTH = 200
MAX_WORKERS = 1000
BIGINT = 2**63
NAME: dict[str, Any] = {"min_length": 1, "max_length": NAME_LENGTH}
DURATION = {"ge": 0.05, "le": MAX_SECONDS}
AT_HEARTBEAT = "From the next heartbeat."

# Names that SQLite can look up in JSON: it reads numbers as list positions and knows no escapes in names.
_METADATA_NAME = re.compile('(?!-?[0-9]+$)[^"\\\\\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}')
METADATA_NAME_RULE = (
    f"must be a text of 1 to {NAME_LENGTH} printable characters, without quotes and backslashes, and not a number"
)

# The names that other queues have for options, each with ours.
ELSEWHERE = {
    **dict.fromkeys(("countdown", "delay", "eta", "run_after", "run_at", "schedule"), "invisible_for, in seconds"),
    **dict.fromkeys(("max_retries", "retries", "retry"), "max_attempts, which counts the first attempt too"),
    **dict.fromkeys(("default_retry_delay", "retry_backoff", "retry_delay"), "backoff, in seconds or a function"),
    **dict.fromkeys(("soft_time_limit", "time_limit"), "timeout, in seconds"),
    **dict.fromkeys(("rate_limit", "throttle"), "rate, such as 10/s"),  # tasks.extensions.throttles
    **dict.fromkeys(("args", "kwargs", "payload"), "data, which is any JSON"),
    **dict.fromkeys(("job_id", "task_id", "unique_key"), "key, a text"),
    "bind": "takes_context=True",
    "result_ttl": "retention, in seconds",
}
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


NEEDS = "worker_count={} needs as many workers, but worker_ids names fewer; "  # tasks.extensions.shared
NEEDS += "name more or none"  # tasks.extensions.shared
EACH_ONCE = "Number of workers that run it, each once."  # tasks.extensions.shared


def milliseconds() -> int:
    """Return the Unix time in milliseconds, the default priority."""
    return time.time_ns() // 1_000_000


def _option(says: str, example: object, changes: str = "", default: Any = None, **limits: float) -> Any:
    """Return the field of an option, with what all ways to publish, change and show tasks need to know about it.

    ``says``: its documentation. ``changes``: when a change takes effect while a worker holds the task; empty: it cannot
    be changed. ``limits``: those of a number (``ge``, ``le``), a text or a list (``min_length``, ``max_length``).
    """
    how = {"default_factory" if callable(default) else "default": default}
    return field(**how, metadata={"says": says, "example": example, "changes": changes, "limits": limits})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A task to publish. Durations are in seconds. None means the value of the queue, or else of the setting.

    Every field but ``given`` is a field of the HTTP API, and every one but ``invisible_for`` a column of the task.
    ``given``: the names of the options that the publisher gave, even as None; an update writes only these.
    """

    action: str = _option("The name of the action.", "resize", default=MISSING, **NAME)
    data: object = _option("The input of the action, as JSON.", {"image": 7})
    key: str | None = _option("A queue has at most one task for each key.", "image-7", **NAME)
    priority: int = _option(
        "Smaller is sooner; by default the current Unix time in ms.", 1, "At the next claim.", milliseconds,
        ge=-BIGINT, le=BIGINT - 1,
    )  # fmt: skip
    metadata: dict[str, object] = _option(  # noqa: RUF009 - a field
        "Names and values to claim and search by.", {"title": "abc"}, default=dict
    )
    # The longest lease is an option of the model, so its bound is checked with that.
    lease: float | None = _option("How long a claim holds without a heartbeat.", 30, AT_HEARTBEAT, **DURATION)
    timeout: float | None = _option(
        "Time limit of an attempt, heartbeats or not.", 600, "From the next heartbeat; see the guide.", **DURATION
    )
    invisible_for: float | None = _option("Seconds until it can be claimed.", 0, ge=0, le=MAX_SECONDS)
    max_attempts: int | None = _option(
        "Claims without success until it is errored.", 3, "When the claim ends.", ge=1, le=1_000_000
    )
    retention: float | None = _option(
        "How long it is stored after it has ended.", 86400, "Once it has ended.", ge=0, le=MAX_SECONDS
    )
    heartbeat_interval: float | None = _option(
        "Seconds between heartbeats of its holder; default: a third of the lease.", 10, AT_HEARTBEAT, **DURATION
    )
    max_unexpected_retries: int | None = _option(
        "Unexpected errors that one worker retries by itself; default: as many as the worker likes.", 2, AT_HEARTBEAT,
        ge=0, le=1_000_000,
    )  # fmt: skip
    worker_ids: tuple[str, ...] = _option(
        "Only these workers may claim it; empty: any.", ["bot-1"], "From the next heartbeat: another holder loses it.",
        default=(), max_length=MAX_WORKERS,
    )  # fmt: skip
    worker_count: int = _option(EACH_ONCE, 1, default=1, ge=1, le=MAX_WORKERS)  # tasks.extensions.shared
    given: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """The number of rows of the task: one, plus one for each worker if several share it."""
        rows = 1
        rows += self.worker_count * (self.worker_count > 1)  # tasks.extensions.shared
        return rows


def message_of(given: dict[str, object], settings: TaskSettings, longest_lease: float) -> Message:
    """Return the checked message; raise :class:`~tasks.exceptions.PublishRefused` for the first problem."""
    try:
        return checked_message(given, settings, longest_lease)
    except TaskError as error:
        raise PublishRefused(str(error)) from None


def checked_message(given: dict[str, Any], settings: TaskSettings, longest_lease: float) -> Message:
    """Return the checked message like :func:`message_of`, but raise ``TaskError``, for calls that publish nothing."""
    if unknown := given.keys() - MESSAGE_FIELDS:
        name = min(map(str, unknown))
        raise TaskError(f"a task has no option {name!r}; {remedy_for(name, MESSAGE_FIELDS)}")
    if "action" not in given:
        raise TaskError("the task has no action; give the name of an action")
    known = {name: value for name, value in given.items() if name in REQUIRED or value is not None}
    message = Message(**known, given=frozenset(given))
    _check_names(message)
    for name, value in known.items():
        if name in NUMBERS:
            least, most, is_int = NUMBERS[name]
            _check_number(name, value, least, longest_lease if name == "lease" else most, is_int=is_int)
    if message.worker_ids and len(set(message.worker_ids)) < message.worker_count:  # tasks.extensions.shared
        raise TaskError(NEEDS.format(message.worker_count))  # tasks.extensions.shared
    check_json("data", message.data, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
    check_metadata(message.metadata, settings.METADATA_LIMIT)
    return message


def remedy_for(unknown: str, known: Iterable[str]) -> str:
    """Return which of the known options to use in place of an unknown one."""
    meant = ELSEWHERE.get(unknown, "")
    return f"use {meant}" if re.split("[,=]", meant)[0] in known else nearest(unknown, known)


OPTIONS = {option.name: option for option in fields(Message) if option.name != "given"}
MESSAGE_FIELDS = frozenset(OPTIONS)
COLUMNS = tuple(name for name in OPTIONS if name != "invisible_for")
# The options that can be changed until the task ends, even while a worker holds it.
CHANGEABLE = {name: changes for name, option in OPTIONS.items() if (changes := option.metadata["changes"])}
# The limits of the numbers and the texts.
LIMITS = {name: option.metadata["limits"] for name, option in OPTIONS.items()}
NUMBERS = {
    name: (limits["ge"], limits["le"], OPTIONS[name].type in (int, int | None))
    for name, limits in LIMITS.items()
    if "ge" in limits
}
TEXTS = {name: limits["max_length"] for name, limits in LIMITS.items() if "min_length" in limits}
REQUIRED = ("action", "data")
# The options whose value is one text or one number.
PLAIN = (*TEXTS, *NUMBERS)


def check_worker(name: object) -> str:
    """Return the name of a worker; raise ``TaskError`` if it is not valid."""
    if not isinstance(name, str) or not WORKER_NAME.fullmatch(name):
        raise TaskError(f"worker={_short(name)} must be {WORKER_NAME_RULE}")
    return name


def check_json(what: str, value: object, limit: int, depth: int) -> None:
    """Raise ``TaskError`` if a value cannot be stored as JSON, or exceeds ``limit`` bytes or ``depth`` levels."""
    json_text(what, value, limit, depth)


def json_text(what: str, value: object, limit: int, depth: int) -> str:
    """Return the value as JSON text; raise ``TaskError`` like :func:`check_json`."""
    try:
        return texts.json_text(what, value, limit, depth)
    except ValueError as error:
        raise TaskError(str(error)) from None


def is_same_json(one: object, other: object) -> bool:
    """Return whether two values are equal as JSON. 1e2 equals 100: databases may return either."""
    first, second = (json.loads(json.dumps(each), parse_int=Decimal, parse_float=Decimal) for each in (one, other))
    return bool(first == second)


def is_metadata_name(name: object) -> bool:
    """Return whether metadata may have a value of this name."""
    return isinstance(name, str) and _METADATA_NAME.fullmatch(name) is not None


def check_metadata(metadata: object, limit: int) -> None:
    """Raise ``TaskError`` for metadata that cannot be searched: a bad name, or a list, object or null as value."""
    if not isinstance(metadata, dict):
        raise TaskError(f"metadata={_short(metadata)} must be a dictionary of names and values")
    if not metadata:
        return
    for name, value in metadata.items():
        if not is_metadata_name(name):
            raise TaskError(f"metadata has the name {_short(name)}; it {METADATA_NAME_RULE}")
        if not isinstance(value, str | int | float | bool):
            raise TaskError(f"metadata[{name!r}] must be a text, a number, True or False, not {_short(value)}")
    check_json("metadata", metadata, limit, 1)


def exclusive_value(key: str, metadata: dict[str, object]) -> str:
    """Return the metadata's value of an exclusive queue's key, as text; raise ``PublishRefused`` if it has none."""
    if key not in metadata:
        raise PublishRefused(f"the queue is exclusive by {key!r}, so the metadata must have a value of {key!r}")
    value = metadata[key]
    # 1.0 and 1 are one value in JSON.
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    text = value if isinstance(value, str) else json.dumps(number)
    if not 0 < len(text) <= NAME_LENGTH:
        raise PublishRefused(f"metadata[{key!r}] must have 1 to {NAME_LENGTH} characters, since the queue is exclusive")
    return text


def _check_names(message: Message) -> None:
    for name, most in TEXTS.items():
        value = getattr(message, name)
        if value is not None or name in REQUIRED:
            check_text(name, value, most)
    if message.action.startswith(DJANGO):
        raise TaskError(f"action={_short(message.action)} is for Django's Tasks framework; enqueue it there")
    workers: object = message.worker_ids
    if isinstance(workers, str) or not isinstance(workers, list | tuple) or len(workers) > MAX_WORKERS:
        raise TaskError(f"worker_ids={_short(workers)} must be a list of at most {MAX_WORKERS} names")
    for worker in workers:
        try:
            check_worker(worker)
        except TaskError as error:
            raise TaskError(f"worker_ids: {error}") from None


def check_text(name: str, value: object, most: float = NAME_LENGTH) -> None:
    """Raise ``TaskError`` if a value is no text that a name or a key may be."""
    if not isinstance(value, str) or not 0 < len(value) <= most or UNPRINTABLE.search(value):
        raise TaskError(f"{name}={_short(value)} must be a text of 1 to {most} printable characters")


def _check_number(name: str, value: object, least: float, most: float, *, is_int: bool = False) -> None:
    if value is None:
        return
    kind, word = (int, "whole number") if is_int else (int | float, "number")
    # This refuses NaN and infinity, too; math.isfinite() fails for large whole numbers.
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
        raise TaskError(f"{name}={_short(value)} must be a {word} from {_plain(least)} to {_plain(most)}")


def worker_digits(worker: str) -> str:
    """Return the first twelve hexadecimal digits of a named worker's tokens."""
    return sha256(worker.encode()).hexdigest()[:12]


def check_lease(value: object, longest_lease: float) -> None:
    """Raise ``TaskError`` for a lease that is too short or too long."""
    _check_number("lease", value, 0.05, longest_lease)


def _plain(number: float) -> str:
    # A float would round 2**63 - 1 up.
    return str(int(number)) if number == int(number) else f"{number:g}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... ({len(text):,} characters)"
