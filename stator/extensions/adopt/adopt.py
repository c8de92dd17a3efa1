"""``stator adopt``: what a status column holds, what writes it, and a graph for it. It reads, and changes nothing."""

from argparse import ArgumentParser
from dataclasses import asdict, dataclass
from pathlib import Path

from django.db import router

from stator.commands.answer import Answer, BadInput, Options, table
from stator.commands.arguments import positive
from stator.db.looks import reading
from stator.extensions.adopt.decisions import decisions, is_stuck
from stator.extensions.adopt.flow import Values
from stator.extensions.adopt.histories import HistoryLook, look_at_histories
from stator.extensions.adopt.proposal import HEAD, Proposal, field_of, module_of, propose
from stator.extensions.adopt.sources import CodeLook, look_at_code
from stator.extensions.adopt.table import TableLook, clock_of, look_at_rows
from stator.extensions.adopt.target import Target, target_of
from stator.graph.durations import span
from stator.texts import counted, listed

HELP = (
    "Report on a status column of a model that Stator does not manage yet, and propose its graph. Nothing is changed."
)

# The most rows that are read of the table and of each history, and seconds that a statement takes.
MOST, SECONDS, DAY = 1_000_000, 10.0, 86400.0
# Lines of a list that the report for people shows; JSON has all of them.
SHOWN = 30


@dataclass(frozen=True)
class AdoptionReport:
    """What was found."""

    target: Target
    using: str
    table: TableLook
    code: CodeLook
    histories: list[HistoryLook]
    proposal: Proposal
    decisions: list[str]
    idle: float


def add_arguments(parser: ArgumentParser) -> None:
    """Add the column and the limits."""
    parser.description = (
        f"{HELP} It shows the values with counts and ages, where the project's code writes the column (a static look), "
        "the transitions that tables of histories have recorded, and what a person has to decide."
    )
    parser.add_argument("label", metavar="app.Model.column", help="The column with the status.")
    parser.add_argument(
        "--write", metavar="FILE", help="Write the proposed graph as a new module, such as shop/graphs.py."
    )
    parser.add_argument("--by", metavar="COLUMN", help="Count ages from this time (default: the best column, named).")
    unmoved = "Rows of this age count as unmoved (default: 86400, a day)."
    parser.add_argument("--unmoved", type=float, default=DAY, metavar="SECONDS", help=unmoved)
    rows = f"Read at most so many rows of the table, and of each history (default: {MOST:,})."
    parser.add_argument("--rows", type=int, default=MOST, metavar="N", help=rows)
    seconds = f"A statement takes at most this time (default: {SECONDS:.0f})."
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="SECONDS", help=seconds)


def run(options: Options) -> Answer:
    """Return the report; write the module if it is asked for."""
    for name in ("unmoved", "rows", "seconds"):
        positive(f"--{name}", options[name])
    target = target_of(options["label"])
    path = _path(options["write"])
    report = report_on(target, options)
    if not report.proposal.states:
        raise BadInput(f"{target.label} has no values: no row, no choices, no write in the code; name another column")
    module = module_of(target, report.proposal)
    if path:
        _write(path, module)
    return Answer({**_data(report), "module": "\n".join(module)}, _lines(report, module, path))


def report_on(target: Target, options: Options) -> AdoptionReport:
    """Return the report on a column, read in transactions that cannot write."""
    using, idle = str(options["database"] or router.db_for_read(target.model)), options["unmoved"]
    clock = clock_of(target, options["by"])
    limits = {"most": options["rows"], "seconds": options["seconds"]}
    with reading(using):
        look = look_at_rows(target, using, clock=clock, idle=idle, **limits)
        histories = look_at_histories(target, using, **limits)
    code = look_at_code(target)
    proposal = propose(target, look.values, code, histories)
    asked = decisions(target, look, code, histories, proposal, idle)
    return AdoptionReport(target, using, look, code, histories, proposal, asked, idle)


def _path(name: str | None) -> Path | None:
    if name is None:
        return None
    path = Path(name)
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise BadInput(f"--write {name!r} must be the name of a module, such as shop/graphs.py")
    if path.exists():
        raise BadInput(f"--write {name!r} exists; name a new file")
    if not path.parent.is_dir():
        raise BadInput(f"--write {name!r}: there is no folder {str(path.parent)!r}; create it first")
    return path


def _write(path: Path, module: list[str]) -> None:
    try:
        path.write_text("\n".join(module) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--write {str(path)!r}: {error.strerror or error}") from error


# For people


def _lines(report: AdoptionReport, module: list[str], path: Path | None) -> list[str]:
    lines = [
        _heading(report), "", *_values(report), "", *_writers(report), "", *_recorded(report), "",
        f"Proposed graph; in the model: {field_of(report.target, report.proposal)}",
        *(f"  {line}".rstrip() for line in module[HEAD:]), "",
        "To decide", *(f"  {number}. {text}" for number, text in enumerate(report.decisions, 1)), "",
    ]  # fmt: skip
    return [*lines, _next(report, path)]


def _heading(report: AdoptionReport) -> str:
    look = report.table
    name = f"{report.target.label}, a {type(report.target.field).__name__} in database {report.using!r}"
    if look.whole:
        return f"{name}: {counted(look.read, 'row')}. Nothing was changed."
    return (
        f"{name}: at least {look.least:,} rows; an estimate from {look.read:,} of them, half with the lowest "
        "keys and half with the highest. Nothing was changed."
    )


def _values(report: AdoptionReport) -> list[str]:
    clock, names = report.table.clock, {state.value: state for state in report.proposal.states}
    since = f"ages by {clock.name}: {clock.means}" if clock else "no column has a time, so ages are unknown"
    rows = []
    for each in report.table.values:
        state = names.get(each.value) if each.value is not None else None
        share = "" if each.unmoved is None else f"{each.unmoved:,} ({100 * each.unmoved // each.rows} %)"
        note = "" if state is None else "final" if state.final else "STUCK?" if is_stuck(state) else ""
        label = "" if state is None else state.label or ("" if state.name == each.value else state.name)
        age = ["-" if seconds is None else span(seconds) for seconds in (each.oldest, each.newest)]
        rows.append(
            ["NULL" if each.value is None else each.value, label, f"{each.rows:,}{'+' * each.cut}", *age, share, note]
        )
    heads = ["value", "label", "rows", "oldest", "newest", f"unmoved for {span(report.idle)}", ""]
    return [f"Values ({since})", *(f"  {line}" for line in table(heads, rows))]


def _writers(report: AdoptionReport) -> list[str]:
    code = report.code
    where = (
        f"a static look at {counted(code.files, 'file')} of {listed(code.apps)}: names and literals, nothing was run"
    )
    rows = [
        [write.where, write.how, f"{_set(write.sources, created=write.creates)} -> {_set(write.targets)}",
         "" if write.sure else "perhaps another model"]
        for write in code.writes
    ]  # fmt: skip
    lines = table(["place", "how", "from -> to", ""], rows[:SHOWN]) if rows else ["none was found"]
    more = [f"and {len(rows) - SHOWN:,} more; --json has all"] if len(rows) > SHOWN else []
    skipped = [f"not read: {each}" for each in code.skipped[:SHOWN]]
    return [f"Writers ({where})", *(f"  {line}" for line in [*lines, *more, *skipped])]


def _set(values: Values | None, *, created: bool = False) -> str:
    return "created" if created else "?" if values is None else ", ".join(sorted(map(str, values)))


def _recorded(report: AdoptionReport) -> list[str]:
    if not report.histories:
        return ["Histories: no table of the project has versions or changes of this column."]
    lines = ["Histories"]
    for look in report.histories:
        rows = f"{'all' if look.whole else 'the latest'} {counted(look.rows, 'row')}"
        lines.append(f"  {look.label}: {look.how}; {look.trouble or rows}")
        lines += [f"    {_set(frozenset([old]))} -> {_set(frozenset([new]))}  {number:,}"
                  for (old, new), number in list(look.moves.items())[:SHOWN]]  # fmt: skip
    return lines


def _next(report: AdoptionReport, path: Path | None) -> str:
    if path:
        return f'Written to {path}. Read it and change it; then see the how-to guide "Adopt a table".'
    return f"To write the graph as a module: manage.py stator adopt {report.target.label} --write FILE.py"


# For programs


def _data(report: AdoptionReport) -> dict[str, object]:
    target, rows, proposal = report.target, report.table, report.proposal
    return {
        "model": str(target.model._meta.label), "column": target.column, "database": report.using,
        "field": type(target.field).__name__, "choices": [[value, label] for value, label in target.labels.items()],
        "constants": target.constants, "default": target.default,
        "rows": {"read": rows.read, "at_least": rows.least, "whole": rows.whole, "seconds": rows.seconds},
        "ages": asdict(rows.clock) if rows.clock else None, "unmoved_for": report.idle,
        "values": [asdict(each) for each in rows.values],
        "code": {"apps": report.code.apps, "files": report.code.files, "skipped": report.code.skipped},
        "writes": [
            {**asdict(write), "sources": _sorted(write.sources), "targets": _sorted(write.targets)}
            for write in report.code.writes
        ],
        "histories": [
            {**asdict(look), "moves": [[old, new, number] for (old, new), number in look.moves.items()]}
            for look in report.histories
        ],
        "graph": {
            "name": proposal.graph, "field": field_of(target, proposal), "initial": proposal.initial,
            "states": [{**asdict(state), "count": state.count.rows if state.count else 0} for state in proposal.states],
            "transitions": [{**asdict(each), "assumed": each.assumed} for each in proposal.transitions],
        },
        "decisions": report.decisions,
    }  # fmt: skip


def _sorted(values: Values | None) -> list[object] | None:
    return None if values is None else sorted(values, key=str)
