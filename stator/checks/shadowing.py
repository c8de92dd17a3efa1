"""The check that the package ``tasks``, a common name, is the one of this distribution."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core import checks

import stator
from stator.checks.messages import message

OURS = Path(stator.__file__).resolve().parent.parent / "tasks"
BACKEND = "tasks.backend.StatorBackend"
HINT = (
    "Rename your package, or the file tasks.py, for instance to jobs: Python imports the first package of a name on "
    "its path, and the folder of manage.py comes first."
)
UNUSED = "If you do not use queues, actions and schedules of Stator, add 'stator.W004' to SILENCED_SYSTEM_CHECKS."


def check_shadowing() -> Iterator[checks.CheckMessage]:
    """E003: another package ``tasks`` is imported where ours is configured. W004: it is installed as an app."""
    found = _imported()
    if found is None or found == OURS:
        return
    if wanted := _configured():
        text = f"{wanted} needs the package tasks of django-stator, but Python imports {found}."
        yield message("E003", text, HINT)
    elif apps.is_installed("tasks"):
        yield message("W004", f"The app 'tasks' is {found}, not the one of django-stator.", f"{HINT} {UNUSED}")


def _imported() -> Path | None:
    """Return the folder of the package that ``import tasks`` finds, or the file of the module."""
    spec = find_spec("tasks")
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or "").resolve()


def _configured() -> str:
    """Return the setting that only the package of this distribution can serve, or an empty string."""
    if hasattr(settings, "STATOR_TASKS"):
        return "STATOR_TASKS"
    backends = getattr(settings, "TASKS", None)
    configured = backends.values() if isinstance(backends, dict) else []
    named = [each.get("BACKEND") for each in configured if isinstance(each, dict)]
    return "TASKS" if BACKEND in named else ""
