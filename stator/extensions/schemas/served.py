"""The schemas of PostgreSQL that a worker serves: which the setting names, and which of them have tables."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import Model
from django.utils.module_loading import import_string

from stator.capabilities import capabilities_of
from stator.conf import WRONG, GivenNames, Settings, load_settings
from stator.db.values import Row
from stator.extensions.schemas import structures
from stator.extensions.schemas.paths import follow_connections, tables_in
from stator.rows.meta import by_database
from stator.scopes import PATHS, Scope
from stator.statements import Statement
from stator.texts import one_line
from stator.worker.serving import Serving
from stator.worker.startup import OWN, Scopes, Unusable, patiently

logger = logging.getLogger("stator.worker")

# The names of schemas, a function that returns them, or its dotted path.
Schemas = GivenNames


@dataclass(frozen=True, slots=True)
class ServedSchemas:
    """What a worker of schemas serves; call it to find out, and why other schemas are left out."""

    models: Sequence[type[Model]]
    alias: str | None
    schemas: Schemas

    def __call__(self) -> tuple[Scopes, dict[str, str]]:
        return find_scopes(self.models, self.alias, self.schemas)

    def scopes(self) -> Scopes:
        """Return the scopes to serve; raise :class:`Unusable` without any."""
        scopes, left_out = self()
        for why in left_out.values() if scopes else ():
            logger.warning("stator.schema_left_out", extra={"why": why})
        if not scopes:
            lines = (f"{why}; run its migrations" for why in left_out.values())
            raise Unusable("\n".join(lines) or "there are no schemas")
        return scopes

    def follow(self) -> None:
        """Have connections follow the schema of their context, before threads open them."""
        follow_connections()

    def serving(self, worker: object, scopes: Scopes) -> Serving:
        """Return how a worker serves them."""
        serving: Serving = import_module("stator.extensions.schemas.resting").Resting(worker, scopes, self)
        return serving

    def read(self, alias: str, paths: Sequence[str], statement: Statement) -> dict[str, Row]:
        """Return the row that a statement finds in each schema, without those where it cannot be sent."""
        answers: dict[str, Row] = _looks().read_in_each(alias, paths, statement)
        return answers

    def by_filled(self, alias: str, scopes: Scopes) -> dict[tuple[type[object], ...], list[Scope]]:
        """Return scopes by the models that may have rows there."""
        scopes_of: dict[tuple[type[object], ...], list[Scope]] = _looks().by_filled(alias, scopes)
        return scopes_of

    def alike(self, alias: str, scopes: Iterable[Scope]) -> list[list[Scope]]:
        """Return scopes of a database in groups with the same tables, the largest group first."""
        return structures.alike(alias, scopes)


def _looks() -> Any:
    # Imported when it is used, as resting and the listener, because it needs psycopg.
    return import_module("stator.extensions.schemas.looks")


def served(models: Sequence[type[Model]], alias: str | None, chosen: Schemas | None) -> ServedSchemas | None:
    """Return the schemas that were chosen, else those of the setting; None if there are none."""
    schemas: Schemas = load_settings().SCHEMAS if chosen is None else chosen
    return ServedSchemas(models, alias, schemas) if schemas else None


def connect() -> None:
    """Let workers serve schemas, and pages and commands look into them."""
    PATHS.served = served
    WRONG.append(_wrong)


def _wrong(settings: Settings) -> Iterator[str]:
    value = settings.SCHEMAS
    is_path = isinstance(value, str) and "." in value
    if not (callable(value) or is_path or _are_names(value)):
        yield f"SCHEMAS={value!r} must be a list of names of schemas, or a function that returns one"


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)


def find_scopes(models: Sequence[type[Model]], alias: str | None, schemas: Schemas) -> tuple[Scopes, dict[str, str]]:
    """Return the models whose table is in each schema, and why schemas without such tables or our own are left out."""
    names = list(dict.fromkeys(_listed(schemas)))
    listed, left_out = Scopes(), dict[str, str]()
    for name, group in by_database(models, alias).items():
        if not capabilities_of(connections[name]).has_schemas:
            raise Unusable(f"database {name!r} has no schemas of PostgreSQL; start a worker without --schema for it")
        there = patiently(name, partial(tables_in, names, [*group, *OWN], name))
        for schema in names:
            tables = {model: there[key] for model in group if (key := (schema, model._meta.db_table)) in there}
            if not tables:
                left_out[schema] = f"schema {schema!r} of database {name!r} has no table of a managed model"
            elif absent := [model for model in OWN if (schema, model._meta.db_table) not in there]:
                lacks = f"schema {schema!r} of database {name!r} lacks the table {absent[0]._meta.db_table}"
                left_out[schema] = f"{lacks}; the app stator belongs to the apps of each schema"
            else:
                listed[Scope(name, schema)] = tables
    served = {scope.path for scope in listed}
    return listed, {schema: why for schema, why in left_out.items() if schema not in served}


def _listed(schemas: Schemas) -> Sequence[str]:
    if isinstance(schemas, str):
        try:
            schemas = import_string(schemas)
        except ImportError as error:
            raise Unusable(f"STATOR['SCHEMAS'] = {schemas!r} cannot be imported: {one_line(error)}") from error
    if not callable(schemas):
        return schemas
    try:
        names = list(schemas())
    except (DatabaseError, InterfaceError) as error:
        raise Unusable(f"the function in STATOR['SCHEMAS'] failed: {one_line(error)}") from error
    if not _are_names(names):
        raise Unusable(f"the function in STATOR['SCHEMAS'] returned {names!r}; return a list of names of schemas")
    return names
