"""The settings of queues: the dictionary ``STATOR_TASKS``, checked as a whole.

It is not named ``TASKS``, because that is Django's own setting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.apps import AppConfig
from django.core import checks

from stator.conf import CheckedSettings, setting

# The prefix of actions that are functions of Django's Tasks framework; their path follows it.
DJANGO = "django:"

LETTERS = "Dotted path of the function that is called with each dead letter."  # tasks.extensions.notices
TICKS = "Lease of a schedule while its tick fires; read when a process starts."  # tasks.extensions.schedules


@dataclass(frozen=True, kw_only=True)
class TaskSettings(CheckedSettings):
    """The ``STATOR_TASKS`` dictionary of the Django settings. Durations are in seconds.

    The first six are defaults for tasks and queues that set no value of their own.
    """

    NAME = "STATOR_TASKS"

    LEASE: float = setting(
        60.0, "How long a claim holds without a heartbeat; if unset, processes take that of STATOR.", 0.5, most=3600.0
    )
    TIMEOUT: float | None = setting(None, "Time limit of an attempt, whatever its heartbeats; None: no limit.", 0.05)
    MAX_ATTEMPTS: int = setting(5, "Number of claims without success after which a task is errored.", 1, int, 100_000)
    INVISIBLE_FOR: float = setting(0.0, "How long a new task waits before it can be claimed.", 0.0)
    RETENTION: float = setting(7 * 86400.0, "How long a task is stored after it has ended.", 0.0)
    FAILED_RETENTION: float | None = setting(None, "How long an errored task is stored; None: RETENTION.", 0.0)
    PAYLOAD_LIMIT: int = setting(262_144, "Maximum size of a task's data or result, in bytes of JSON.", 2, int, 2**27)
    PAYLOAD_DEPTH: int = setting(50, "Maximum depth of nested lists and objects in data or result.", 1, int, 200)
    METADATA_LIMIT: int = setting(16_384, "Maximum size of a task's metadata, in bytes of JSON.", 2, int, 2**20)
    CLAIM_LIMIT: int = setting(1000, "Maximum number of tasks that one call claims.", 1, int, 10_000)
    PUBLISH_LIMIT: int = setting(10_000, "Maximum number of tasks that one call publishes.", 1, int, 100_000)
    TICK_LEASE: float = setting(10.0, TICKS, 0.5, most=3600.0)  # tasks.extensions.schedules
    THREADS: int = setting(10, "How many synchronous actions one process runs at once.", 1, int, 1000)
    NOTIFY: str = setting("tasks.dead_letters.mail_administrators", LETTERS, kind=str)  # tasks.extensions.notices
    API_REQUESTS_PER_MINUTE: int = setting(60_000, "How many requests one token may send per minute.", 1, int, 10**6)
    API_ROWS_PER_MINUTE: int = setting(60_000, "How many rows one token may publish per minute.", 1, int, 10**8)
    API_WAIT: float = setting(30.0, "Longest time that a claim over HTTP may wait for a task.", 0.0, most=600.0)
    API_WAITING: int | None = setting(
        None, "How many claims over HTTP may wait in one process; None: by its threads.", 0, int, 10_000
    )


read_settings = TaskSettings.read
# Called in every attempt.
load_settings = TaskSettings.latest


def lease_of_process(usual: float) -> float:
    """Return the lease of a worker process's tasks: ``LEASE`` if ``STATOR_TASKS`` sets it, else the framework's."""
    given = TaskSettings.given()
    return load_settings().LEASE if isinstance(given, dict) and "LEASE" in given else usual


def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[checks.CheckMessage]:
    """Return the errors tasks.E001: a setting that cannot work."""
    return list(TaskSettings.errors(read_settings()[1], "tasks.E001"))


def connect() -> None:
    """Register the check with Django."""
    checks.register(check_settings, "tasks")
