"""``stator doctor``: what is wrong with databases, tables, rows and workers, and what to do about it."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from stator.commands.answer import Answer
from stator.commands.arguments import database_of, models_of
from stator.commands.doctor import clocks, crew, postgresql, tables
from stator.commands.doctor.finding import FAIL, WARN, Finding
from stator.commands.figures import databases_of

HELP = "Look for trouble; exit code 1 when there is any."
FAILED = 1


def add_arguments(parser: ArgumentParser) -> None:
    """How strict to be."""
    parser.add_argument("--strict", action="store_true", help="Exit code 1 for warnings as well.")


def run(options: dict[str, Any]) -> Answer:
    """Every finding, good or bad."""
    models = models_of([])
    found = [
        finding
        for alias in databases_of(models, options)
        for finding in examine(alias, [model for model in models if database_of(options, model) == alias])
    ]
    levels = {finding.level for finding in found}
    code = FAILED if FAIL in levels or (options["strict"] and WARN in levels) else 0
    return Answer({"ok": not code, "findings": [finding.as_dict() for finding in found]}, _lines(found), code)


def examine(alias: str, models: list[Any]) -> Iterator[Finding]:
    """What is found in one database; nothing further where it cannot be used at all."""
    usable = tables.usable(alias, models)
    yield usable
    if usable.level == FAIL:
        return
    yield tables.indexes(alias, models)
    yield tables.unknown_states(alias, models)
    yield crew.expired_leases(alias, models)
    yield crew.live_workers(alias, models)
    yield clocks.skew(alias)
    yield from postgresql.examine(alias, models)


def _lines(found: list[Finding]) -> list[str]:
    lines = []
    for finding in found:
        lines.append(f"{finding.level:4}  {finding.database}  {finding.check}: {finding.message}")
        if finding.remedy:
            lines.append(f"      -> {finding.remedy}")
    return lines
