"""``stator doctor``: problems with databases, tables, rows and workers, and their remedies."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator

from django.db import DatabaseError, InterfaceError, connections

from stator.capabilities import capabilities_of
from stator.commands.answer import Answer, Options
from stator.commands.arguments import models_of
from stator.commands.doctor import clocks, postgresql, standing, tables
from stator.explain.problem import ERROR, OK, WARNING, Problem
from stator.models import StatorModel
from stator.rows.meta import by_database
from stator.texts import one_line

HELP = (
    "Check databases, tables, rows and workers for problems, and say how to fix them. "
    "Exits with 1 if there is a problem. Changes nothing."
)
FAILED = 1

# The names of the levels in the output.
LEVELS = {OK: "ok", WARNING: "warn", ERROR: "fail"}

Look = Callable[[str, list[type[StatorModel]]], Problem | list[Problem]]
# The checks, by the capability of a database that they need; the first ones are for every database.
LOOKS: dict[str, tuple[Look, ...]] = {
    "": (tables.indexes, clocks.skew, standing.troubles),
    "has_plpgsql": (tables.triggers,),
    "has_partitions": (tables.partitions,),
    "has_monitoring_views": (
        postgresql.server, postgresql.long_transactions, postgresql.oldest_snapshot, postgresql.dead_rows,
        postgresql.replication,
    ),
    "notifies": (postgresql.pooler,),
    "fails_when_locked": (tables.sqlite_options,),
}  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option for strictness."""
    parser.add_argument("--strict", action="store_true", help="Exit code 1 for warnings as well.")


def run(options: Options) -> Answer:
    """Return the results of all checks, good or bad."""
    found = [
        {
            "check": one.code, "database": alias, "level": LEVELS[one.level], "message": one.sentence,
            "remedy": one.remedy,
        }
        for alias, models in by_database(models_of([]), options["database"]).items()
        for one in examine(alias, models)
    ]  # fmt: skip
    levels = {one["level"] for one in found}
    code = FAILED if "fail" in levels or (options["strict"] and "warn" in levels) else 0
    return Answer({"ok": not code, "findings": found}, list(_lines(found)), code)


def examine(alias: str, models: list[type[StatorModel]]) -> Iterator[Problem]:
    """Yield the results in one database, for models with complete tables; nothing more if there are none."""
    usable, complete = tables.usable(alias, models)
    yield usable
    if not complete:
        return
    capabilities = capabilities_of(connections[alias])
    for needed, looks in LOOKS.items():
        for look in looks if not needed or getattr(capabilities, needed) else ():
            yield from _looked(look, alias, complete)


def _looked(look: Look, alias: str, models: list[type[StatorModel]]) -> list[Problem]:
    """Return the results of a check; if it fails, the other checks still run."""
    try:
        found = look(alias, models)
    except (DatabaseError, InterfaceError) as error:
        text = f"could not be checked: {one_line(error)}"
        return [Problem(look.__name__.replace("_", " "), text, level=ERROR)]
    return found if isinstance(found, list) else [found]


def _lines(found: list[dict[str, str]]) -> Iterator[str]:
    for one in found:
        yield f"{one['level']:4}  {one['database']}  {one['check']}: {one['message']}"
        if one["remedy"]:
            yield f"      -> {one['remedy']}"
