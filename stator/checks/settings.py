"""Checks of a site: its settings, what a deployment needs, and whether another package has our name."""

from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import connections

import stator
from stator.checks.messages import message
from stator.conf import LEGACY, CheckedSettings, Settings, read_settings
from stator.models import StatorModel
from stator.rows.meta import by_database


def check_settings() -> Iterator[checks.CheckMessage]:
    """E001: a setting that cannot work, or two that conflict. W002: one with another meaning in Takahe's Stator.

    W005: one that nothing reads, because its name is wrong. W006: one that is gone.
    """
    yield from _check_names()
    yield from _check_gone()
    given, problems = read_settings()
    yield from Settings.errors(problems, "stator.E001")
    most = getattr(settings, "STATOR_CONCURRENCY_PER_MODEL", None)
    if not problems and most and given.CONCURRENCY_PER_MODEL == most < given.CONCURRENCY:
        text = f"STATOR_CONCURRENCY_PER_MODEL={most} limits how many objects of a model are attempted at once."
        instead = f"STATOR = {{'CONCURRENCY_PER_MODEL': {most}}}"
        hint = f"In Takahe's Stator it limited one fetch. Remove it, or if you want the limit write {instead}."
        yield message("W002", text, hint)


def _check_gone() -> Iterator[checks.CheckMessage]:
    for kind in CheckedSettings.__subclasses__():
        given = kind.given()
        for name, instead in kind.GONE.items():
            if isinstance(given, dict) and name in given:
                hint = f"{instead}, and remove the setting. See 'Upgrade to a new version'."
                yield message("W006", f"{kind.NAME}[{name!r}] is gone: nothing reads it.", hint)


def _check_names() -> Iterator[checks.CheckMessage]:
    kinds = CheckedSettings.__subclasses__()
    known = {kind.NAME for kind in kinds}
    inside = {f"{kind.NAME}_{option.name}": kind for kind in kinds for option in fields(kind)}
    for name in sorted(filter(str.isupper, dir(settings))):
        if name in known or name in LEGACY.values() or not name.startswith(Settings.NAME):
            continue
        if name in inside:
            of = inside[name].NAME
            meant = f"Write {of} = {{{name.removeprefix(f'{of}_')!r}: ...}}."
        elif close := get_close_matches(name, known, 1, cutoff=0.9):
            meant = f"Did you mean {close[0]}?"
        else:
            # A setting of the project's own.
            continue
        yield message("W005", f"Nothing reads the setting {name}.", meant)


def check_debug() -> Iterator[checks.CheckMessage]:
    """W401: with DEBUG, workers store the text of every query until the attempt ends."""
    if settings.DEBUG:
        text = "DEBUG is True: workers store the text of each query until the attempt ends, which makes them slower."
        yield message("W401", text, "Set DEBUG = False.")


def check_atomic_requests(models: list[type[StatorModel]]) -> Iterator[checks.CheckMessage]:
    """W402: each request is one transaction, and workers see none of its writes before it ends."""
    for alias in sorted(by_database(models)):
        if connections[alias].settings_dict.get("ATOMIC_REQUESTS"):
            text = (
                f"ATOMIC_REQUESTS is on for the database {alias!r}: workers see an object that a request creates only "
                "after the response. A view that waits for workers never gets a result."
            )
            hint = "Put transaction.non_atomic_requests on views that wait for workers, then silence this check."
            yield message("W402", text, hint)


OURS = Path(stator.__file__).resolve().parent.parent / "tasks"
BACKEND = "tasks.backend.StatorBackend"
HINT = (
    "Rename your package, or the file tasks.py, for instance to jobs: Python imports the first package of a name on "
    "its path, and the folder of manage.py comes first."
)
UNUSED = "If you do not use queues, actions and schedules of Stator, add 'stator.W004' to SILENCED_SYSTEM_CHECKS."


def check_shadowing() -> Iterator[checks.CheckMessage]:
    """E003: another package ``tasks`` is imported where ours is configured. W004: it is installed as an app."""
    imported = _imported()
    if imported is None or imported == OURS:
        return
    if wanted := _configured():
        text = f"{wanted} needs the package tasks of django-stator, but Python imports {imported}."
        yield message("E003", text, HINT)
    elif apps.is_installed("tasks"):
        yield message("W004", f"The app 'tasks' is {imported}, not the one of django-stator.", f"{HINT} {UNUSED}")


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
