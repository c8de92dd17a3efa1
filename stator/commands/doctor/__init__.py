"""``stator doctor``: problems with databases, tables, rows and workers, and their remedies."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator

from django.db import DatabaseError, InterfaceError, connections

from stator.capabilities import Capabilities, capabilities_of
from stator.commands.answer import Answer
from stator.commands.arguments import Options, database_of, models_of
from stator.commands.doctor import clocks, crew, postgresql, standing, tables
from stator.commands.doctor.finding import FAIL, WARN, Finding
from stator.graph.failures import bounded
from stator.models import StatorModel
from stator.rows.meta import by_database

HELP = (
    "Check databases, tables, rows and workers for problems, and say how to fix them. "
    "Exits with 1 if there is a problem. Changes nothing."
)
FAILED = 1

Look = Callable[[str, list[type[StatorModel]]], Finding | list[Finding]]
LOOKS: tuple[Look, ...] = (
    tables.indexes,
    tables.unknown_states,
    crew.live_workers,
    crew.served,
    clocks.skew,
    standing.troubles,
)
# On databases with monitoring views.
MONITORING: tuple[Look, ...] = (
    postgresql.server,
    postgresql.long_transactions,
    postgresql.oldest_snapshot,
    postgresql.dead_rows,
    postgresql.replication,
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option for strictness."""
    parser.add_argument("--strict", action="store_true", help="Exit code 1 for warnings as well.")


def run(options: Options) -> Answer:
    """Return every finding, good or bad."""
    models = models_of([])
    found = [
        finding
        for alias in by_database(models, options["database"])
        for finding in examine(alias, [model for model in models if database_of(options, model) == alias])
    ]
    levels = {finding.level for finding in found}
    code = FAILED if FAIL in levels or (options["strict"] and WARN in levels) else 0
    return Answer({"ok": not code, "findings": [finding.as_dict() for finding in found]}, _lines(found), code)


def examine(alias: str, models: list[type[StatorModel]]) -> Iterator[Finding]:
    """Yield the findings in one database, for models with complete tables; nothing more if there are none."""
    usable, complete = tables.usable(alias, models)
    yield usable
    if not complete:
        return
    for look in (*LOOKS, *_further(capabilities_of(connections[alias]))):
        yield from _looked(look, alias, complete)


def _further(capabilities: Capabilities) -> Iterator[Look]:
    """Yield the checks that not every database needs."""
    if capabilities.has_plpgsql:
        yield tables.triggers
    if capabilities.has_monitoring_views:
        yield from MONITORING
    if capabilities.notifies:
        yield postgresql.pooler
    if capabilities.fails_when_locked:
        yield tables.sqlite_options


def _looked(look: Look, alias: str, models: list[type[StatorModel]]) -> list[Finding]:
    """Return the findings of a check; if it fails, the others still run."""
    try:
        found = look(alias, models)
    except (DatabaseError, InterfaceError) as error:
        text = bounded(" ".join(str(error).split()), 300)
        return [Finding(look.__name__.replace("_", " "), alias, FAIL, f"could not be checked: {text}")]
    return found if isinstance(found, list) else [found]


def _lines(found: list[Finding]) -> list[str]:
    lines = []
    for finding in found:
        lines.append(f"{finding.level:4}  {finding.database}  {finding.check}: {finding.message}")
        if finding.remedy:
            lines.append(f"      -> {finding.remedy}")
    return lines
