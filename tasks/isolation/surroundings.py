"""What the process of an isolated action takes over from the worker: its settings and the names of its databases.

In production both have them from the same module; tests have databases of their own, and override settings.
"""

import json
from importlib import import_module
from typing import Any

from django.conf import global_settings, settings
from django.db import connections

from tasks.failures import IsolationError

# Databases are taken over by their names, and Django warns of those who override the whole.
NOT_OVERRIDDEN = {"DATABASES"}

MISSING = object()


def settings_module() -> str:
    """The name of the module that the settings are read from; ``IsolationError`` where there is none."""
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
    """What a request says of both. ``using``: the database that the process has to find the task in."""
    if using is not None:
        connection: Any = connections[using]
        if connection.vendor == "sqlite" and connection.is_in_memory_db():
            raise IsolationError(
                f"database {using!r} is in memory, where no other process finds it; name a file, in tests by "
                f"DATABASES[{using!r}]['TEST']['NAME']"
            )
    names = {alias: str(connections.settings[alias]["NAME"]) for alias in connections}
    return {"settings": overridden(settings_module()), "databases": names}


def overridden(module: str) -> dict[str, Any]:
    """The settings that are not as their module has them, as far as JSON has values like theirs."""
    base, found = import_module(module), {}
    # Past the outermost object, which puts a prefix before some.
    given: Any = settings._wrapped
    for name in dir(given):
        if name.isupper() and name not in NOT_OVERRIDDEN | {"SETTINGS_MODULE"}:
            value, usual = getattr(given, name), getattr(base, name, getattr(global_settings, name, MISSING))
            if value is not usual and value != usual and (told := _told(value)) is not MISSING:
                found[name] = told
    return found


def take_over(request: dict[str, Any]) -> None:
    """Use the databases of the worker; to be called before any is connected to."""
    for alias, name in request.get("databases", {}).items():
        if alias in connections.settings:
            connections.settings[alias]["NAME"] = name


def take_over_settings(request: dict[str, Any]) -> None:
    """Override settings as the worker has done, by the same means; to be called once Django is set up."""
    if given := request.get("settings"):
        # By name: outside of tests it is hardly ever needed, and it loads much.
        import_module("django.test.utils").override_settings(**given).enable()


def _told(value: Any) -> Any:
    """The value without what JSON has not: such members of a dictionary, or all."""
    if isinstance(value, dict):
        members = {name: _told(member) for name, member in value.items() if isinstance(name, str)}
        return {name: member for name, member in members.items() if member is not MISSING}
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return MISSING
    return value
