"""``stator doctor``: problems with databases, tables, rows and workers, and their remedies."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import replace

from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.module_loading import import_string

from stator.batteries import extensions
from stator.capabilities import capabilities_of
from stator.commands.answer import Answer, Figures, Options, with_remedy
from stator.commands.arguments import models_of
from stator.db.looks import bounded
from stator.extensions.problems.commands.doctor import postgresql, servers, standing, tables
from stator.extensions.problems.in_schemas import MAX_LOOKED, InSchemas, in_schemas, named, surveyed
from stator.models import StatorModel
from stator.rows.meta import by_database
from stator.rows.problem import ERROR, OK, WARNING, Problem
from stator.rows.workers import are_shown
from stator.scopes import entering
from stator.survey.looks import works_in_schemas
from stator.texts import counted, one_line
from stator.worker.startup import Unusable

HELP = (
    "Check databases, tables, rows and workers for problems, and say how to fix them. "
    "Exits with 1 if there is a problem. Changes nothing."
)
FAILED = 1

# The names of the levels in the output.
LEVELS = {OK: "ok", WARNING: "warn", ERROR: "fail"}

Look = Callable[[str, list[type[StatorModel]]], Problem | list[Problem]]
# The checks of servers, by the capability of a database that they need; "" if every database has it.
SERVERS: dict[str, tuple[Look, ...]] = {
    "": (servers.skew,),
    "has_monitoring_views": (
        postgresql.server, postgresql.long_transactions, postgresql.lock_waits, postgresql.oldest_snapshot,
        postgresql.dead_rows, postgresql.replication,
    ),
    "notifies": (postgresql.pooler,),
    "fails_when_locked": (tables.sqlite_options,),
}  # fmt: skip

# Seconds that a statement of a check takes at most.
LONGEST = 10.0

# Of many schemas, the different structures that are examined, and the schemas that are named because they lack tables.
MAX_STRUCTURES, MAX_LEFT_OUT = 20, 20


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option for strictness."""
    parser.add_argument("--strict", action="store_true", help="Exit code 1 for warnings as well.")


def run(options: Options) -> Answer:
    """Return the results of all checks, good or bad."""
    models = models_of([])
    if works_in_schemas(options["database"] or DEFAULT_DB_ALIAS):
        examined = examine_schemas(models, options["database"])
    else:
        groups = by_database(models, options["database"])
        examined = ((alias, one) for alias, group in groups.items() for one in examine(alias, group))
    findings: list[Figures] = [
        {
            "check": one.code, "database": alias, "level": LEVELS[one.level], "message": one.sentence,
            "remedy": one.remedy, "schemas": list(one.schemas),
        }
        for alias, one in examined
    ]  # fmt: skip
    levels = {one["level"] for one in findings}
    code = FAILED if "fail" in levels or (options["strict"] and "warn" in levels) else 0
    return Answer({"ok": not code, "findings": findings}, list(_lines(findings)), code)


def examine(alias: str, models: list[type[StatorModel]]) -> Iterator[Problem]:
    """Yield the results in one database, for models with complete tables; nothing more if there are none."""
    usable, complete = tables.usable(alias, models)
    yield usable
    if complete:
        yield from _of_all_tables(alias, complete)
        yield from _looked(standing.troubles, alias, complete)
        yield from _of_servers(alias, complete)


def examine_schemas(models: list[type[StatorModel]], using: str | None) -> Iterator[tuple[str, Problem]]:
    """Yield the results in all schemas of the setting: for tables, of one schema of those that are alike."""
    try:
        known = in_schemas(models, using)
    except Unusable as error:
        message, _, remedy = str(error).rpartition("; ")
        yield using or DEFAULT_DB_ALIAS, Problem("database", message, remedy=remedy, level=ERROR)
        return
    for alias in dict.fromkeys(scope.alias for scope in known.by_scope):
        for one in _of_tables(alias, known):
            yield alias, one
        for one in _of_servers(alias, models):
            yield alias, one
        left_out = list(known.left_out.values())
        for why in left_out[:MAX_LEFT_OUT]:
            yield alias, Problem("schemas", why, remedy="migrate it, or leave it out of SCHEMAS", level=WARNING)
        if len(left_out) > MAX_LEFT_OUT:
            further = f"{counted(len(left_out) - MAX_LEFT_OUT, 'further schema')} without tables of the framework"
            yield alias, Problem("schemas", further, level=WARNING)
        alone = [scope for scope in known.alone if scope.alias == alias]
        # Objects that wait for a worker are a problem of their own.
        if empty := [scope.path for scope in alone if scope not in known.filled]:
            message = f"no live worker in {counted(len(empty), 'schema')} without objects: {named(empty)}"
            yield alias, Problem("workers", message, remedy="start manage.py runstator", level=WARNING)
        elif not alone and are_shown():
            yield alias, Problem("workers", "every schema has a live worker", level=OK)
    looked = surveyed(known, MAX_LOOKED)
    for one in standing.judged(looked.problems()):
        yield using or DEFAULT_DB_ALIAS, one
    if looked.note:
        yield using or DEFAULT_DB_ALIAS, Problem("troubles", looked.note, level=WARNING)


def _of_tables(alias: str, known: InSchemas) -> Iterator[Problem]:
    """Yield the results of the checks of tables, in one schema of each structure."""
    structures = known.served.alike(alias, (scope for scope in known.by_scope if scope.alias == alias))
    for same in structures[:MAX_STRUCTURES]:
        names = tuple(scope.path for scope in same)
        with entering(names[0]):
            usable, complete = tables.usable(alias, known.models[same[0]])
            for one in (usable, *(_of_all_tables(alias, complete) if complete else ())):
                yield replace(one, sentence=f"in {named(names)}: {one.sentence}", schemas=names)
    if further := [scope.path for same in structures[MAX_STRUCTURES:] for scope in same]:
        message = f"not examined in {counted(len(further), 'schema')} with other tables or columns: {named(further)}"
        yield Problem("database", message, remedy="stator doctor --schema NAME", level=WARNING)


def _of_all_tables(alias: str, models: list[type[StatorModel]]) -> Iterator[Problem]:
    yield from _looked(tables.indexes, alias, models)
    for path in (path for extension in extensions() for path in extension.looks):
        yield from _looked(import_string(path), alias, models)


def _of_servers(alias: str, models: list[type[StatorModel]]) -> Iterator[Problem]:
    capabilities = capabilities_of(connections[alias])
    for needed, looks in SERVERS.items():
        for look in looks if not needed or getattr(capabilities, needed) else ():
            yield from _looked(look, alias, models)


def _looked(look: Look, alias: str, models: list[type[StatorModel]]) -> list[Problem]:
    """Return the results of a check; if it fails, the other checks still run."""
    try:
        with bounded(alias, most=LONGEST):
            answer = look(alias, models)
    except Exception as error:  # noqa: BLE001 - a fault of one check, or of a project's own
        text = f"could not be checked: {type(error).__name__}: {one_line(error)}"
        return [Problem(look.__name__.replace("_", " "), text, level=ERROR)]
    return answer if isinstance(answer, list) else [answer]


def _lines(findings: list[Figures]) -> Iterator[str]:
    for one in findings:
        yield from with_remedy(f"{one['level']:4}  {one['database']}  {one['check']}: {one['message']}", one["remedy"])
