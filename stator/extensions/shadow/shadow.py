"""``stator shadow``: how other code and workers differ about the objects of a model in shadow."""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass

from stator.commands.answer import Answer, Options, table
from stator.commands.arguments import add_label, database_of, model_of
from stator.extensions.shadow.report import LineGroup, ShadowReport, report_on
from stator.graph.durations import span
from stator.rows.clock import moment_json, moment_text
from stator.texts import counted

HELP = (
    "Show what workers would have done to the objects of a model in shadow, and where the code that moves them differs."
)

OFF = 'No state of it is in shadow now: "shadow = True" in its StatorMeta, or runstator --shadow.'
EMPTY = "Nothing was seen yet: workers look at it in their scheduling passes."


@dataclass(frozen=True)
class ReportSection:
    """Groups under one heading."""

    head: str
    groups: list[LineGroup]
    late: str


def add_arguments(parser: ArgumentParser) -> None:
    """Add the model."""
    add_label(parser)


def run(options: Options) -> Answer:
    """Return the groups of what was seen."""
    model = model_of(options["label"])
    using = database_of(options, model)
    report = report_on(model, using)
    data = {
        "model": model._meta.label,
        "database": using,
        "shadow": report.states,
        "since": report.since and moment_json(report.since),
        "differences": report.differences,
        "at_rest": report.at_rest,
        **report.as_dict(),
    }
    return Answer(data, list(_lines(model._meta.label, report)))


def _lines(label: str, report: ShadowReport) -> Iterator[str]:
    yield f"{label} in shadow: {', '.join(report.states)}. Workers run nothing." if report.states else f"{label}. {OFF}"
    if report.since is None:
        yield EMPTY
        return
    yield f"Seen since {moment_text(report.since)}; {counted(report.differences, 'difference')}."
    sections = (
        ReportSection("Other code moved these, and workers would have left them alone:", report.not_here, ""),
        ReportSection("Due here and not moved there:", report.not_there, "due for"),
        ReportSection("Other code moved these elsewhere than workers would have:", report.elsewhere, "late by"),
        ReportSection("Moved as workers would have:", report.as_here, "late by"),
    )
    for section in sections:
        if section.groups:
            yield ""
            yield section.head
            yield from table(*_table(section))
    yield ""
    yield f"{counted(report.at_rest, 'object')} that both leave alone."


def _table(section: ReportSection) -> tuple[list[str], list[list[str]]]:
    is_open = section.late == "due for"
    heads = ["from", *["moved to"] * (not is_open), "here", "objects", *[section.late, "at most"] * bool(section.late)]
    rows = [
        [
            each.source,
            *[each.to or "(deleted)"] * (not is_open),
            each.act or "-",
            f"{each.count:,}",
            *(_span(each.late), _span(each.latest))[: 2 * bool(section.late)],
            ", ".join(each.examples),
        ]
        for each in section.groups
    ]
    return [*heads, "for instance"], rows


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(max(seconds, 0.0))
