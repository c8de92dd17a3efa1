"""The settings and database names that an isolated process takes over from its worker.

In production both processes read the same settings module. Tests use other databases and override settings.
"""

import json
from importlib import import_module
from typing import Any

from django.conf import global_settings, settings
from django.db import connections

from stator.capabilities import capabilities_of
from tasks.failures import IsolationError

# Databases are taken over by name: Django warns if the whole setting is overridden.
NOT_OVERRIDDEN = {"DATABASES"}

MISSING = object()


def settings_module() -> str:
    """Return the name of the settings module; raise ``IsolationError`` if there is none."""
    holder: Any = settings._wrapped
    while hasattr(holder, "default_settings"):
        holder = holder.default_settings
    if not (name := getattr(holder, "SETTINGS_MODULE", None)):
        raise IsolationError(
            "an isolated action needs a settings module to read in its own process, and this process was configured "
            "without; set DJANGO_SETTINGS_MODULE instead of calling settings.configure()"
        )
    return str(name)


def surroundings(using: str | None) -> dict[str, Any]:
    """Return the settings and databases for a request. ``using``: the database that has the task."""
    if using is not None:
        connection: Any = connections[using]
        if capabilities_of(connection).may_be_in_memory and connection.is_in_memory_db():
            raise IsolationError(
                f"database {using!r} is in memory, where no other process finds it; name a file, in tests by "
                f"DATABASES[{using!r}]['TEST']['NAME']"
            )
    names = {alias: str(connections.settings[alias]["NAME"]) for alias in connections}
    return {"settings": overridden(settings_module()), "databases": names}


def overridden(module: str) -> dict[str, Any]:
    """Return the settings that differ from their module, as far as JSON can express them."""
    base, found = import_module(module), {}
    # Skip the outermost object: it adds a prefix to some settings.
    given: Any = settings._wrapped
    for name in dir(given):
        if name.isupper() and name not in NOT_OVERRIDDEN | {"SETTINGS_MODULE"}:
            value, usual = getattr(given, name), getattr(base, name, getattr(global_settings, name, MISSING))
            if value is not usual and value != usual and (expressible := _expressible(value)) is not MISSING:
                found[name] = expressible
    return found


def take_over(request: dict[str, Any]) -> None:
    """Use the worker's databases. Call this before any connection is made."""
    for alias, name in request.get("databases", {}).items():
        if alias in connections.settings:
            connections.settings[alias]["NAME"] = name


def take_over_settings(request: dict[str, Any]) -> None:
    """Override settings as the worker has done. Call this once Django is set up."""
    if given := request.get("settings"):
        # Imported by name: the module is large and hardly needed outside of tests.
        import_module("django.test.utils").override_settings(**given).enable()


def _expressible(value: Any) -> Any:
    """Return the value without dictionary entries that JSON cannot express, or ``MISSING`` if it has no JSON form."""
    if isinstance(value, dict):
        members = {name: _expressible(member) for name, member in value.items() if isinstance(name, str)}
        return {name: member for name, member in members.items() if member is not MISSING}
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return MISSING
    return value
