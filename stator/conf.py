"""The settings: default, unit and help text of each. Read once at the edge and passed on from there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from django.conf import settings as django_settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from stator.graph.backoff import MAX_SECONDS
from stator.graph.options import is_number
from stator.texts import nearest, one_line

# Settings of Takahe's Stator that are read if the dictionary does not have these keys.
LEGACY = {name: f"STATOR_{name}" for name in ("TOKEN", "CONCURRENCY", "CONCURRENCY_PER_MODEL")}

# A worker that dies loses the leases of everything it runs, so one lost lease says little about an object; two do.
ALONE_FROM = 2


# Names; a function that returns them, or its path.
GivenNames = Sequence[str] | Callable[[], Sequence[str]] | str

Value = TypeVar("Value")

TRACED = "Whether workers create an OpenTelemetry span for each attempt."  # stator.extensions.tracing
BESIDE = "For development: whether runserver starts a worker beside it."  # stator.extensions.processes
SERVED = "The schemas in which workers work: a list, a function, or its path."  # stator.extensions.schemas


def setting(
    default: Value,
    help_text: str,
    least: float | None = None,
    kind: type = float,
    most: float | None = None,
    of_lease: float | None = None,
) -> Value:
    """Declare a setting: a number from ``least`` to ``most``, a string, a boolean, or with ``kind=list`` secrets.

    With ``kind=Sequence``, it is a list of dotted paths of modules with an ``EXTENSION`` each. With ``kind=tuple``, its
    extension checks it (``WRONG``).

    ``of_lease``: if ``LEASE`` is set, the default is at most this fraction of it. None is allowed if it is the default.
    """
    most = {int: 100_000, float: MAX_SECONDS}.get(kind) if most is None else most
    return field(
        default=default,
        metadata={"help": help_text, "least": least, "most": most, "kind": kind, "of_lease": of_lease},
    )


@dataclass(frozen=True, kw_only=True)
class CheckedSettings:
    """A dictionary of the Django settings, checked as a whole."""

    # The dictionary's name in the Django settings.
    NAME: ClassVar[str]

    # Settings that are gone: what has taken their place. Nothing reads them, and a check says so.
    GONE: ClassVar[dict[str, str]] = {}

    # A copy of what was given the last time, and the settings that were made of it.
    _latest: ClassVar[tuple[object, Any]] = (None, None)

    @classmethod
    def given(cls) -> object:
        """Return what the Django settings have for these settings, unchecked."""
        return getattr(django_settings, cls.NAME, None) or {}

    @classmethod
    def latest(cls) -> Self:
        """Return what :meth:`load` returns, but validate only when the Django settings changed: for hot paths."""
        given = cls.given()
        # Compared with a copy, because the dictionary may be changed in place.
        if given != cls._latest[0]:
            cls._latest = deepcopy(given), cls.load()
        settings: Self = cls._latest[1]
        return settings

    @classmethod
    def read(cls, **overrides: object) -> tuple[Self, list[str]]:
        """Return the settings with ``overrides``, and one sentence for each problem in them."""
        given = cls.given()
        if not isinstance(given, dict):
            return cls(), [f"{cls.NAME} must be a dictionary, not {type(given).__name__}"]
        known = {option.name for option in fields(cls)}
        problems = [_unknown_key(name, known) for name in given if name not in known and name not in cls.GONE]
        settings = cls(**cls.completed({name: given[name] for name in given if name in known} | overrides))
        problems += settings.problems()
        return settings, problems or list(settings.conflicts())

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Return the settings with ``overrides``; raise ``ImproperlyConfigured`` with one line if a value is wrong."""
        settings, problems = cls.read()
        if overrides and not problems:
            settings, problems = cls.read(**overrides)
        if problems:
            raise ImproperlyConfigured(f"{cls.NAME} setting: {problems[0]}")
        return settings

    @classmethod
    def errors(cls, problems: list[str], identifier: str) -> Iterator[checks.CheckMessage]:
        """Yield the problems as errors of Django's checks."""
        for problem in problems:
            message, _, remedy = problem.partition("; ")
            hint = f"{remedy or 'See the settings in the reference'}."
            yield checks.Error(f"{cls.NAME} setting: {message}.", hint=hint, id=identifier)

    @classmethod
    def completed(cls, values: dict[str, object]) -> dict[str, object]:
        """Return the given values, plus defaults that depend on them."""
        return values

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each value that cannot work."""
        for option in fields(self):
            value = getattr(self, option.name)
            if not (value is None and option.default is None):
                yield from _wrong_value(option.name, value, option.metadata)

    def conflicts(self) -> Iterator[str]:
        """Yield one sentence for each pair of values that conflict."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedSettings):
    """The ``STATOR`` dictionary of the Django settings. Values are seconds unless their help differs."""

    NAME = "STATOR"
    GONE: ClassVar[dict[str, str]] = {"READ_ALIAS": "Let db_for_read of a router name the replica for the admin site"}

    LEASE: float = setting(60.0, "How long a claim holds without a heartbeat.", 0.5)
    REAP_INTERVAL: float = setting(5.0, "How often expired leases are ended.", 0.05, of_lease=0.5)
    POLL_INTERVAL: float = setting(
        1.0, "How often an idle worker looks for ready and due objects.", 0.01, of_lease=0.25
    )
    SCHEDULE_INTERVAL: float = setting(30.0, "Interval of the passes for timeouts, deletions and statistics.", 0.05)
    SHUTDOWN_TIMEOUT: float = setting(25.0, "How long a stopping worker waits for running attempts.", 0.0, of_lease=1.0)
    MAX_RUNTIME: float = setting(3600.0, "Time limit of an attempt, unless its state sets max_runtime.", 0.05)
    CONCURRENCY: int = setting(100, "How many attempts one process runs at once.", 1, int)
    CONCURRENCY_PER_MODEL: int = setting(
        0, "How many attempts of one model run at once in a process; 0: no limit.", 0, int
    )
    THREADS: int = setting(10, "How many synchronous handlers one process runs at once.", 1, int)
    BATCH_SIZE: int = setting(900, "The most objects that one statement claims or records.", 1, int)
    MAX_CRASHES: int = setting(3, "Number of lost leases in a row that quarantines an object.", 1, int)
    CRASHED_AT_ONCE: int = setting(
        0, "How many objects that lost one lease run at once in a process; 0: half of CONCURRENCY.", 0, int
    )
    WATCHDOG: float = setting(60.0, "How long the loop of a worker may be blocked before it is ended.", 0.5)
    ERROR_RETENTION: float = setting(30 * 86400.0, "How long the latest error of an object is stored.", 0.0)
    HISTORY_RETENTION: float = setting(
        90 * 86400.0, "How long it is stored what happened to objects: moves, errors, what people did and sent.", 0.0
    )
    PAYLOAD_LIMIT: int = setting(
        262_144, "Maximum size of a payload or of a result that is recorded, in bytes of JSON.", 2, int, 2**27
    )
    STATS_RETENTION: float = setting(400 * 86400.0, "How long statistics are stored.", 0.0)
    NOTIFY: bool = setting(True, "Whether NOTIFY wakes idle workers, if the database supports it.", kind=bool)
    LISTEN_DSN: str = setting("", "Connection string for LISTEN, if the database is behind a pooler.", kind=str)
    TOKEN: str | list[str] = setting("", "Token(s) of at least 32 bytes, for requests over HTTP.", kind=list)  # noqa: RUF009
    ALLOW_QUERY_TOKEN: bool = setting(False, "Whether the token may also be given as ?token=.", kind=bool)
    HTTP_RUN_FOR: float = setting(2.0, "How long one request to the HTTP runner works.", 0.1)
    ADMIN: bool = setting(True, "Whether the admin shows models that the project does not register.", kind=bool)
    SCHEMAS: GivenNames = setting((), SERVED, kind=tuple)  # noqa: RUF009 - stator.extensions.schemas
    EXTENSIONS: Sequence[str] = setting((), "Modules with an EXTENSION each, after Stator's own.", kind=Sequence)
    TRACING: bool = setting(False, TRACED, kind=bool)  # stator.extensions.tracing
    UTC: bool = setting(False, "Whether pages and commands show times in UTC, not in the site's TIME_ZONE.", kind=bool)
    RUNSERVER_WORKER: bool = setting(False, BESIDE, kind=bool)  # stator.extensions.processes

    @property
    def alone_from(self) -> int:
        """An object that has lost this many leases in a row is attempted alone.

        Unless ``MAX_CRASHES`` is 1, this is less, so the crash that quarantines an object harms no other attempt.
        """
        return max(1, min(ALONE_FROM, self.MAX_CRASHES - 1))

    @property
    def released_with(self) -> int:
        """The number of lost leases that an object has after its quarantine: it is attempted alone, if any may be."""
        return self.alone_from if self.alone_from < self.MAX_CRASHES else 0

    @property
    def crashed_at_once(self) -> int:
        """The most objects with 1 to ``alone_from - 1`` lost leases that one process attempts at once."""
        return self.CRASHED_AT_ONCE or max(1, self.CONCURRENCY // 2)

    @classmethod
    def given(cls) -> object:
        """Return what the Django settings have for these settings, also under Takahe's names."""
        given = super().given()
        return _legacy() | given if isinstance(given, dict) else given

    @classmethod
    def completed(cls, values: dict[str, object]) -> dict[str, object]:
        """Add the defaults that a given lease shortens."""
        return _following_lease(values) | values

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each value that cannot work."""
        yield from super().problems()
        for wrong in WRONG:
            yield from wrong(self)

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


# What extensions find wrong in their settings: one sentence for each value that cannot work.
WRONG: list[Callable[[Settings], Iterator[str]]] = []


def shows_utc() -> bool:
    """Return whether people read times in UTC; for pages and commands, which work with wrong settings too."""
    given = Settings.given()
    return isinstance(given, dict) and given.get("UTC") is True


load_settings = Settings.load
read_settings = Settings.read
latest_settings = Settings.latest


def _following_lease(values: dict[str, object]) -> dict[str, object]:
    lease = values.get("LEASE")
    if not is_number(lease) or lease <= 0:
        return {}
    return {
        option.name: min(option.default, option.metadata["of_lease"] * lease)
        for option in fields(Settings)
        if option.metadata["of_lease"] and option.name not in values
    }


def _legacy() -> dict[str, object]:
    return {
        name: getattr(django_settings, legacy)
        for name, legacy in LEGACY.items()
        if getattr(django_settings, legacy, None) is not None
    }


def _wrong_value(name: str, value: object, metadata: Mapping[str, Any]) -> Iterator[str]:
    kind, least, most = metadata["kind"], metadata["least"], metadata["most"]
    if kind is bool and not isinstance(value, bool):
        yield f"{name}={value!r} must be True or False"
    elif kind is str and not isinstance(value, str):
        yield f"{name} must be a string, not {type(value).__name__}"
    elif kind is list:
        yield from _wrong_secrets(name, value)
    elif kind is Sequence:
        yield from _wrong_extensions(name, value)
    elif kind in (int, float) and not (is_number(value) and (kind is float or isinstance(value, int))):
        yield f"{name}={value!r} must be {'a whole number' if kind is int else 'a number'}"
    elif least is not None and value < least:
        yield f"{name}={value!r} must be at least {least}"
    elif most is not None and value > most:
        yield f"{name}={value!r} must be at most {most:.0f}"


def _wrong_secrets(name: str, value: object) -> Iterator[str]:
    secrets = value if isinstance(value, list | tuple) else [value] if value != "" else []
    if any(not isinstance(secret, str) or len(secret.encode(errors="replace")) < 32 for secret in secrets):
        # The value is a secret and stays out of the message.
        wrong = f"{name} must be a string of at least 32 bytes, or a list of them"
        yield f"{wrong}; make one with secrets.token_urlsafe(32)"


def extensions_of_project() -> tuple[str, ...]:
    """Return the modules of ``EXTENSIONS``; none if one of them is wrong, which the settings then say when loaded."""
    given = Settings.read()[0].EXTENSIONS
    return () if any(_wrong_extensions("EXTENSIONS", given)) else tuple(given)


def _wrong_extensions(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(path, str) for path in value):
        yield f"{name}={value!r} must be a list of dotted paths of modules"
        return
    for path in value:
        try:
            module = import_module(path)
        except (ImportError, ValueError) as error:
            yield f"{name} has {path!r}, which cannot be imported: {one_line(error)}"
        else:
            if not hasattr(module, "EXTENSION"):
                yield f"{name} has {path!r}, a module without EXTENSION; see 'Write an extension'"
    if twice := sorted({path for path in value if value.count(path) > 1}):
        yield f"{name} has {twice[0]!r} twice; remove one"


def _unknown_key(name: object, known: set[str]) -> str:
    return f"{name!r} is not a setting; {nearest(str(name).upper(), known, noun='known settings')}"
