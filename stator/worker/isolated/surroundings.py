"""The settings and database names that an isolated process takes over from its worker.

In production both processes read the same settings module. Tests use other databases and override settings.
"""

import json
from importlib import import_module
from typing import Any

from django.conf import global_settings, settings
from django.db import connections

from stator.worker.isolated.messages import ProcessFailed

# Databases are taken over by name: Django warns if the whole setting is overridden.
NOT_OVERRIDDEN = {"DATABASES"}

MISSING = object()


def settings_module() -> str:
    """Return the name of the settings module; raise ``ProcessFailed`` if there is none."""
    holder: Any = settings._wrapped
    while hasattr(holder, "default_settings"):
        holder = holder.default_settings
    if not (name := getattr(holder, "SETTINGS_MODULE", None)):
        raise ProcessFailed(
            "an isolated process needs a settings module to read, and this process was configured without; set "
            "DJANGO_SETTINGS_MODULE instead of calling settings.configure()"
        )
    return str(name)


def surroundings() -> dict[str, Any]:
    """Return the settings and the names of databases that an isolated process takes over as options."""
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


def take_over(options: dict[str, Any]) -> None:
    """Use the worker's databases. Call this before any connection is made."""
    for alias, name in options.get("databases", {}).items():
        if alias in connections.settings:
            connections.settings[alias]["NAME"] = name


def take_over_settings(options: dict[str, Any]) -> None:
    """Override settings as the worker has done. Call this once Django is set up."""
    if given := options.get("settings"):
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
