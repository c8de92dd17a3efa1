"""The settings of queues: the dictionary ``STATOR_TASKS``, checked as a whole.

The name is not ``TASKS``: that is Django's own setting, in which every key is the alias of a backend.
"""

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, cast

from django.conf import settings as django_settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

LONGEST = 100 * 365 * 86400.0


def _setting(
    default: Any, help_text: str, least: float | None = None, kind: type = float, most: float = LONGEST
) -> Any:
    return field(default=default, metadata={"help": help_text, "least": least, "most": most, "kind": kind})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The ``STATOR_TASKS`` dictionary of the Django settings. Durations are in seconds.

    The first six are defaults for tasks and queues that set no value of their own.
    """

    LEASE: float = _setting(60.0, "How long a claim holds without a heartbeat.", 0.5, most=3600.0)
    TIMEOUT: float | None = _setting(None, "Time limit of an attempt, whatever its heartbeats; None: no limit.", 0.05)
    MAX_ATTEMPTS: int = _setting(5, "Number of claims without success after which a task is errored.", 1, int, 100_000)
    INVISIBLE_FOR: float = _setting(0.0, "How long a new task waits before it can be claimed.", 0.0)
    RETENTION: float = _setting(7 * 86400.0, "How long a task is stored after it has ended.", 0.0)
    FAILED_RETENTION: float | None = _setting(None, "How long an errored task is stored; None: RETENTION.", 0.0)
    PAYLOAD_LIMIT: int = _setting(262_144, "Maximum size of a task's data or result, in bytes of JSON.", 2, int, 2**27)
    PAYLOAD_DEPTH: int = _setting(50, "Maximum depth of nested lists and objects in data or result.", 1, int, 200)
    METADATA_LIMIT: int = _setting(16_384, "Maximum size of a task's metadata, in bytes of JSON.", 2, int, 2**20)
    CLAIM_LIMIT: int = _setting(1000, "Maximum number of tasks that one call claims.", 1, int, 10_000)
    PUBLISH_LIMIT: int = _setting(10_000, "Maximum number of tasks that one call publishes.", 1, int, 100_000)
    TICK_LEASE: float = _setting(
        10.0, "Lease of a schedule while its tick fires; read when a process starts.", 0.5, most=3600.0
    )
    THREADS: int = _setting(10, "How many synchronous actions one process runs at once.", 1, int, 1000)
    NOTIFY: str = _setting(
        "tasks.dead_letters.mail_administrators",
        "Dotted path of the function that is called with each dead letter.",
        kind=str,
    )
    API_REQUESTS_PER_MINUTE: int = _setting(6000, "How many API requests one token may send per minute.", 1, int, 10**6)
    API_ROWS_PER_MINUTE: int = _setting(60_000, "How many rows one token may publish per minute.", 1, int, 10**8)
    API_WAIT: float = _setting(30.0, "Longest time that a claim over HTTP may wait for a task.", 0.0, most=600.0)
    API_WAITING: int | None = _setting(
        None, "How many claims over HTTP may wait in one process; None: half of its threads.", 0, int, 10_000
    )

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each value that cannot work."""
        for option in fields(self):
            yield from _wrong_value(option.name, getattr(self, option.name), option.metadata, option.default)


_latest: dict[str, Any] = {"given": None, "settings": Settings()}


def load_settings() -> Settings:
    """Return the settings in force; raise ``ImproperlyConfigured`` with one line if any of them cannot work."""
    # Called at every attempt, so cached. Compared with a copy, because the dictionary may be changed in place.
    given = getattr(django_settings, "STATOR_TASKS", None)
    if given != _latest["given"]:
        settings, problems = read_settings()
        if problems:
            raise ImproperlyConfigured(f"STATOR_TASKS setting: {problems[0]}")
        _latest.update(given=copy(given), settings=settings)
    return cast(Settings, _latest["settings"])


def read_settings() -> tuple[Settings, list[str]]:
    """Return the settings and one sentence for each problem with them."""
    given = getattr(django_settings, "STATOR_TASKS", None) or {}
    if not isinstance(given, dict):
        return Settings(), [f"STATOR_TASKS must be a dictionary, not {type(given).__name__}"]
    known = {option.name for option in fields(Settings)}
    settings = Settings(**{name: value for name, value in given.items() if name in known})
    problems = [_unknown_key(name, known) for name in given if name not in known]
    return settings, problems + list(settings.problems())


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Return the errors tasks.E001 (a setting that cannot work) and tasks.E002 (``NOTIFY`` is not callable)."""
    settings, problems = read_settings()
    found: list[checks.CheckMessage] = []
    for problem in problems:
        message, _, remedy = problem.partition("; ")
        hint = f"{remedy or 'See the settings in the reference'}."
        found.append(checks.Error(f"STATOR_TASKS setting: {message}.", hint=hint, id="tasks.E001"))
    try:
        callable_there = callable(import_string(settings.NOTIFY)) if isinstance(settings.NOTIFY, str) else True
    except ImportError:
        callable_there = False
    if not callable_there:
        message = f"STATOR_TASKS setting: NOTIFY={settings.NOTIFY!r} is not the dotted path of a callable."
        found.append(
            checks.Error(
                message,
                hint="Set NOTIFY to the dotted path of a function that takes a dead letter.",
                id="tasks.E002",
            )
        )
    return found


def connect() -> None:
    """Register the check with Django."""
    checks.register(check_settings, "tasks")


def _wrong_value(name: str, value: Any, metadata: Any, default: Any) -> Iterator[str]:
    kind, least, most = metadata["kind"], metadata["least"], metadata["most"]
    if value is None and default is None:
        return
    if kind is str:
        if not isinstance(value, str):
            yield f"{name} must be a string, not {type(value).__name__}"
    elif not _is_number(kind, value):
        yield f"{name}={value!r} must be {'a whole number' if kind is int else 'a number'}"
    elif value < least:
        yield f"{name}={value!r} must be at least {least}"
    elif value > most:
        yield f"{name}={value!r} must be at most {most:.0f}"


def _is_number(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if kind is int else isinstance(value, int | float) and math.isfinite(value)


def _unknown_key(name: Any, known: set[str]) -> str:
    close = get_close_matches(str(name).upper(), known, 1)
    remedy = f"did you mean {close[0]}?" if close else f"known settings are {', '.join(sorted(known))}"
    return f"{name!r} is not a setting; {remedy}"
