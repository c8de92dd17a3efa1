"""The settings: default, unit and help text of each. Read once at the edge and passed on from there."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured

from stator.graph.backoff import LONGEST

T = TypeVar("T")

MOST = {int: 100_000, float: LONGEST}

# A dying worker takes along everything it runs, so one lost lease says nothing about an object; two do.
ALONE_FROM = 2


def _setting(
    default: T, help_text: str, least: float | None = None, kind: type = float, of_lease: float | None = None
) -> T:
    """Declare a setting; its default is at most ``of_lease`` (a fraction) of the lease."""
    return field(default=default, metadata={"help": help_text, "least": least, "kind": kind, "of_lease": of_lease})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The ``STATOR`` dictionary of the Django settings, checked. Values are seconds unless their help differs."""

    LEASE: float = _setting(60.0, "How long a claim holds without a heartbeat.", 0.5)
    REAP_INTERVAL: float = _setting(5.0, "How often expired leases are ended.", 0.05, of_lease=0.5)
    POLL_INTERVAL: float = _setting(
        1.0, "How often an idle worker looks for ready and due objects.", 0.01, of_lease=0.25
    )
    SCHEDULE_INTERVAL: float = _setting(30.0, "Interval of the passes for timeouts, deletions and statistics.", 0.05)
    SHUTDOWN_TIMEOUT: float = _setting(
        25.0, "How long a stopping worker waits for running attempts.", 0.0, of_lease=1.0
    )
    MAX_RUNTIME: float = _setting(3600.0, "Time limit of an attempt, unless its state sets max_runtime.", 0.05)
    CONCURRENCY: int = _setting(100, "How many attempts one process runs at once.", 1, int)
    CONCURRENCY_PER_MODEL: int = _setting(
        0, "How many attempts of one model run at once in a process; 0: no limit.", 0, int
    )
    THREADS: int = _setting(10, "How many synchronous handlers one process runs at once.", 1, int)
    BATCH_SIZE: int = _setting(500, "The most objects that one statement claims or records.", 1, int)
    MAX_CRASHES: int = _setting(3, "Number of lost leases in a row that quarantines an object.", 1, int)
    CRASHED_AT_ONCE: int = _setting(
        0, "How many objects that lost one lease run at once; 0: half of CONCURRENCY.", 0, int
    )
    WATCHDOG: float = _setting(60.0, "The watchdog ends a worker whose event loop is blocked this long.", 0.5)
    ERROR_RETENTION: float = _setting(30 * 86400.0, "How long the latest error of an object is stored.", 0.0)
    HISTORY_RETENTION: float = _setting(
        90 * 86400.0, "How long the history is stored: moves, errors, manual actions.", 0.0
    )
    STATS_RETENTION: float = _setting(400 * 86400.0, "How long statistics are stored.", 0.0)
    NOTIFY: bool = _setting(True, "Whether NOTIFY wakes idle workers, if the database supports it.", kind=bool)
    LISTEN_DSN: str = _setting("", "Connection string for LISTEN, if the database is behind a pooler.", kind=str)
    TOKEN: str | list[str] = _setting("", "Token(s) of at least 32 bytes, for HTTP runner and metrics.", kind=str)  # noqa: RUF009
    ALLOW_QUERY_TOKEN: bool = _setting(False, "Whether the token may also be given as ?token=.", kind=bool)
    HTTP_RUN_FOR: float = _setting(2.0, "How long one request to the HTTP runner works.", 0.1)
    ADMIN: bool = _setting(True, "Whether the admin shows models that the project does not register.", kind=bool)
    TRACING: bool = _setting(False, "Whether workers create an OpenTelemetry span for each attempt.", kind=bool)

    @property
    def alone_from(self) -> int:
        """How many leases an object loses in a row before it is attempted alone.

        So nothing else runs beside the crash that puts an object into quarantine.
        """
        return max(1, min(ALONE_FROM, self.MAX_CRASHES - 1))

    @property
    def crashed_at_once(self) -> int:
        """How many objects with 1 to ``alone_from - 1`` lost leases one process attempts at once, at most."""
        return self.CRASHED_AT_ONCE or max(1, self.CONCURRENCY // 2)

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each value that cannot work."""
        for option in fields(self):
            yield from _wrong_value(option.name, getattr(self, option.name), option.metadata)
        if self.TRACING is True and not _has_tracing():
            yield "TRACING needs opentelemetry-api, which is not installed; pip install 'django-stator[tracing]'"

    def conflicts(self) -> Iterator[str]:
        """Yield one sentence for each pair of values that conflict."""
        if self.LEASE <= 3 * self.POLL_INTERVAL and self.LEASE < 3:
            yield f"LEASE={self.LEASE} is too close to POLL_INTERVAL={self.POLL_INTERVAL}; raise LEASE to 3 times that"
        if self.LEASE <= self.REAP_INTERVAL:
            wrong = f"LEASE={self.LEASE} must be longer than REAP_INTERVAL={self.REAP_INTERVAL}"
            yield f"{wrong}; raise LEASE or lower REAP_INTERVAL"
        if self.SHUTDOWN_TIMEOUT > self.LEASE:
            wrong = f"SHUTDOWN_TIMEOUT={self.SHUTDOWN_TIMEOUT} must not be longer than LEASE={self.LEASE}"
            yield f"{wrong}; lower it or raise LEASE"


def load_settings(**overrides: Any) -> Settings:
    """Return the settings with ``overrides``; raise ``ImproperlyConfigured`` with one line if a value is wrong."""
    settings, problems = read_settings()
    if overrides and not problems:
        settings, problems = read_settings(**overrides)
    if problems:
        raise ImproperlyConfigured(f"STATOR setting: {problems[0]}")
    return settings


def read_settings(**overrides: Any) -> tuple[Settings, list[str]]:
    """Return the settings with ``overrides``, and one sentence for each problem with them.

    Some defaults follow the given lease, so ``LEASE`` can be set alone.
    """
    given = getattr(django_settings, "STATOR", None) or {}
    if not isinstance(given, dict):
        return Settings(), [f"STATOR must be a dictionary, not {type(given).__name__}"]
    known = {option.name for option in fields(Settings)}
    problems = [_unknown_key(name, known) for name in given if name not in known]
    values = _legacy() | {name: value for name, value in given.items() if name in known} | overrides
    settings = Settings(**_following_lease(values), **values)
    problems += settings.problems()
    return settings, problems or list(settings.conflicts())


def _following_lease(values: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults that the given lease shortens."""
    lease: Any = values.get("LEASE")
    if not _is_number(float, lease) or lease <= 0:
        return {}
    return {
        option.name: min(option.default, option.metadata["of_lease"] * lease)
        for option in fields(Settings)
        if option.metadata["of_lease"] and option.name not in values
    }


def _legacy() -> dict[str, Any]:
    """Return settings under the names that Takahe's Stator reads, unless ``STATOR`` has them."""
    given = getattr(django_settings, "STATOR", None) or {}
    names = {name: f"STATOR_{name}" for name in ("TOKEN", "CONCURRENCY", "CONCURRENCY_PER_MODEL")}
    return {
        name: getattr(django_settings, legacy)
        for name, legacy in names.items()
        if name not in given and getattr(django_settings, legacy, None) is not None
    }


def _wrong_value(name: str, value: Any, metadata: Mapping[str, Any]) -> Iterator[str]:
    kind, least = metadata["kind"], metadata["least"]
    if kind is bool and not isinstance(value, bool):
        yield f"{name}={value!r} must be True or False"
    elif kind is str:
        yield from _wrong_text(name, value)
    elif kind in (int, float) and not _is_number(kind, value):
        yield f"{name}={value!r} must be {'a whole number' if kind is int else 'a number'}"
    elif least is not None and value < least:
        yield f"{name}={value!r} must be at least {least}"
    elif value > MOST.get(kind, value):
        yield f"{name}={value!r} must be at most {MOST[kind]:.0f}"


def _wrong_text(name: str, value: object) -> Iterator[str]:
    if name != "TOKEN":
        if not isinstance(value, str):
            yield f"{name} must be a string, not {type(value).__name__}"
        return
    tokens = value if isinstance(value, list | tuple) else [value] if value != "" else []
    if any(not isinstance(token, str) or len(token.encode(errors="replace")) < 32 for token in tokens):
        # The value is a secret and stays out of the message.
        yield "TOKEN must be a string of at least 32 bytes, or a list of them; make one with secrets.token_urlsafe(32)"


def _has_tracing() -> bool:
    try:
        return find_spec("opentelemetry.trace") is not None
    except ModuleNotFoundError:
        return False


def _is_number(kind: type, value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if kind is int else isinstance(value, int | float) and math.isfinite(value)


def _unknown_key(name: object, known: set[str]) -> str:
    close = get_close_matches(str(name).upper(), known, 1)
    remedy = f"did you mean {close[0]}?" if close else f"known settings are {', '.join(sorted(known))}"
    return f"{name!r} is not a setting; {remedy}"
