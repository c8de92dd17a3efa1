"""What an isolated process takes over from its worker: at its start, and with each request.

At its start it takes over the settings and the names of the databases. In production both processes read the same
settings module; tests use other databases and override settings. Each request has its :class:`Surroundings`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from importlib import import_module
from typing import Any

from django.conf import global_settings, settings
from django.db import connections
from django.utils import timezone, translation

from stator.extensions.isolation.messages import ProcessFailed
from stator.scopes import Scope, path_in_use
from stator.texts import JsonObject

# Databases are taken over by name: Django warns if the whole setting is overridden.
NOT_OVERRIDDEN = {"DATABASES"}

MISSING = object()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a request is carried out in another process: as it would be in the context that makes it.

    ``using``: the alias of the database. ``schema``: the schema of PostgreSQL, "" for the connection's own.
    ``language``: the active language, None if translations are off. ``time_zone``: the name of the active time zone, or
    its minutes east of UTC if it has none.

    Standard input, which is empty, and the context variables of the process belong to the process itself.
    """

    using: str
    schema: str
    language: str | None
    time_zone: str | int

    @classmethod
    def here(cls, using: str, schema: str = "") -> "Surroundings":
        """Return the surroundings of this context; ``schema``: that of the request, if it has one of its own."""
        schema = schema or path_in_use(connections[using])
        return cls(using, schema, translation.get_language(), _time_zone())

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "Surroundings":
        """Return the surroundings that a request has."""
        return cls(**{field.name: request[field.name] for field in fields(cls)})

    def as_request(self) -> JsonObject:
        """Return them as a part of a request."""
        return asdict(self)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Carry out the block in them."""
        zone = self.time_zone
        active = timezone.get_fixed_timezone(zone) if isinstance(zone, int) else zone
        with Scope(self.using, self.schema).enter(), translation.override(self.language), timezone.override(active):
            yield


def _time_zone() -> str | int:
    active = timezone.get_current_timezone()
    name: str | None = getattr(active, "key", None)
    return name or (active.utcoffset(None) or timedelta()) // timedelta(minutes=1)


def settings_module() -> str:
    """Return the name of the settings module; raise ``ProcessFailed`` if there is none."""
    holder = settings._wrapped
    while hasattr(holder, "default_settings"):
        holder = holder.default_settings
    if not (name := getattr(holder, "SETTINGS_MODULE", None)):
        raise ProcessFailed(
            "an isolated process needs a settings module to read, and this process was configured without; set "
            "DJANGO_SETTINGS_MODULE instead of calling settings.configure()"
        )
    return str(name)


def surroundings() -> dict[str, object]:
    """Return the settings and the names of databases that an isolated process takes over as options."""
    names = {alias: str(connections.settings[alias]["NAME"]) for alias in connections}
    return {"settings": overridden(settings_module()), "databases": names}


def overridden(module: str) -> dict[str, object]:
    """Return the settings that differ from their module, as far as JSON can express them."""
    base, changed = import_module(module), {}
    # Skip the outermost object: it adds a prefix to some settings.
    given = settings._wrapped
    for name in dir(given):
        if name.isupper() and name not in NOT_OVERRIDDEN | {"SETTINGS_MODULE"}:
            value, usual = getattr(given, name), getattr(base, name, getattr(global_settings, name, MISSING))
            if value is not usual and value != usual and (expressible := _expressible(value)) is not MISSING:
                changed[name] = expressible
    return changed


def take_over(options: JsonObject) -> None:
    """Use the worker's databases. Call this before any connection is made."""
    for alias, name in options.get("databases", {}).items():
        if alias in connections.settings:
            connections.settings[alias]["NAME"] = name


def take_over_settings(options: JsonObject) -> None:
    """Override settings as the worker has done. Call this once Django is set up."""
    if given := options.get("settings"):
        # Imported by name: the module is large and hardly needed outside of tests.
        import_module("django.test.utils").override_settings(**given).enable()


def _expressible(value: object) -> object:
    """Return the value without dictionary entries that JSON cannot express, or ``MISSING`` if it has no JSON form."""
    if isinstance(value, dict):
        members = {name: _expressible(member) for name, member in value.items() if isinstance(name, str)}
        return {name: member for name, member in members.items() if member is not MISSING}
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return MISSING
    return value
