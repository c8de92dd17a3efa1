"""``stator preview``: what the current code would do to real objects, without doing it."""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from django.db.models import Model, Q, QuerySet

from stator.commands.answer import Answer, Figures, Options, refusing, table
from stator.commands.arguments import add_label, add_what, limit_of, model_of, positive, rows_of, state_of, where_of
from stator.commands.intents import ATTEMPTED, attempt, intents
from stator.commands.rehearsal import Finding, TookTooLong, rehearse
from stator.conf import load_settings
from stator.db import operations_for
from stator.db.interface import Operations, new_worker_id
from stator.graph import State
from stator.graph.failures import bounded as cut
from stator.logs import progress
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.due_times import is_due
from stator.rows.indexes import place_in_line
from stator.rows.keys import shown_key
from stator.rows.left import taken_up
from stator.rows.lookups import check_lookups, try_lookups
from stator.rows.state_column import state_field
from stator.texts import COUNTED, count_text

HELP = (
    "Run the handlers of this code on objects that are due, roll everything back, and show what would happen. "
    "Databases do not change, but mail, HTTP calls and all other effects of handlers are real."
)
WARNING = (
    "stator: handlers really run: their database writes are rolled back; mail, HTTP calls and other effects are not"
)
HEADS = ["objects", "what would happen", "for instance"]

TIMEOUT = 10.0
EXAMPLES = 3

# The exit code if a handler took too long.
GAVE_UP = 2

MESSAGE = 100

LEFT_ALONE = {
    "claimed": "held by workers",
    "locked": "locked by others, or changed meanwhile",
    "quarantined": "in quarantine",
    "unknown": "in a state that this code does not know",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the objects, their number, and the time limit of a handler."""
    add_label(parser)
    add_what(parser)
    limit_help = "Maximum number of objects, spread evenly over the states (default: 200)."
    parser.add_argument("--limit", type=int, default=200, metavar="N", help=limit_help)
    parser.add_argument("--all-waiting", action="store_true", help="Also objects that are not due yet.")
    timeout_help = "Give up when a handler runs longer (default: the max_runtime of its state, or 10)."
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help=timeout_help)


def run(options: Options) -> Answer:
    """Return what an attempt would do to each object, and what would happen without an attempt."""
    limit = limit_of(options)
    positive("--timeout", options["timeout"])
    model = model_of(options["label"])
    with taken_up(model):
        return _preview(model, limit, options)


def _preview(model: type[StatorModel], limit: int, options: Options) -> Answer:
    rows = _meant(rows_of(model, options), options)
    operations = operations_for(model, load_settings(), new_worker_id(), rows.db)
    chosen, more = _chosen(rows, limit, all_waiting=options["all_waiting"])
    done = _rehearsed(operations, chosen, options["timeout"])
    findings = done.findings
    left = {
        "claimed": bounded(rows.leased()),
        "locked": sum(map(len, chosen.values())) - len(findings) - done.left_out,
        "quarantined": bounded(rows.quarantined().filter(state_claim=None)),
        "unknown": bounded(rows.unknown().exclude(**state_field(model).among(model.state_graph.renames))),
    }
    data = {
        "model": model._meta.label,
        "database": rows.db,
        "attempted": len(findings),
        "more": more,
        "outcomes": _grouped(findings),
        "without_handler": _without_handler(model, rows),
        "left_alone": left,
        "gave_up": done.gave_up,
        "not_tried": done.not_tried,
    }
    return Answer(data, list(_lines(data)), GAVE_UP if done.gave_up else 0)


def bounded(rows: QuerySet[Model]) -> int:
    """Return the number of rows, counted up to one more than ``COUNTED``."""
    return int(rows.order_by().values("pk")[: COUNTED + 1].count())


def _meant(rows: OperatorQuerySet, options: Options) -> OperatorQuerySet:
    """Return the rows in the requested state that match the requested lookups."""
    if state := state_of(rows.model, options["state"]):
        rows = rows.in_state(state)
    if where := where_of(options["where"]):
        with refusing(ValueError):
            where = check_lookups(rows.model, where)
            try_lookups(rows.model, rows.db, where)
        # In a subquery, because a lookup through a relation may find an object twice.
        rows = rows.filter(pk__in=OperatorQuerySet(rows.model, using=rows.db).filter(**where).values("pk"))
    return rows


def _chosen(rows: OperatorQuerySet, limit: int, *, all_waiting: bool) -> tuple[dict[State, list[object]], bool]:
    """Return keys of objects by state, as evenly over the states as possible, and whether there are more."""
    states = [state for state in rows.model.state_graph.states.values() if state.automatic]
    due, crashes = Q() if all_waiting else is_due(rows.model), load_settings().MAX_CRASHES
    in_turn = rows.order_by(place_in_line(), "pk").values_list("pk", flat=True)
    by_state = [
        [(state, pk) for pk in in_turn.filter(attempt(rows, state, crashes, due).where)[: limit + 1]]
        for state in states
    ]
    alike = [each for turn in zip_longest(*by_state) for each in turn if each is not None]
    chosen = {state: [pk for its, pk in alike[:limit] if its is state] for state in states}
    return chosen, len(alike) > limit


@dataclass(slots=True)
class _Rehearsed:
    """The findings. ``gave_up``: state and objects of a too slow handler. ``not_tried``: untried objects by state."""

    findings: list[Finding] = field(default_factory=list)
    gave_up: Figures | None = None
    not_tried: dict[str, int] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """The number of chosen objects without a result."""
        return sum(self.not_tried.values()) + (len(self.gave_up["objects"]) if self.gave_up else 0)


def _rehearsed(operations: Operations, chosen: dict[State, list[object]], timeout: float | None) -> _Rehearsed:
    total, done, tried = sum(map(len, chosen.values())), _Rehearsed(), set[object]()
    if total:
        sys.stderr.write(f"{WARNING}\n")
    with progress(f"of {total:,} attempted") as shown:
        for state, part in _parts(chosen):
            seconds = timeout or state.max_runtime or TIMEOUT
            try:
                # One by one, so that findings before a timeout are not lost.
                for finding in rehearse(operations, state, part, seconds):
                    done.findings.append(finding)
            except TookTooLong as late:
                objects = late.pks or part
                done.gave_up = {"state": state.name, "objects": list(map(str, objects)), "seconds": seconds}
                tried.update(objects, (each.pk for each in done.findings))
                done.not_tried = Counter(its.name for its, pks in chosen.items() for pk in pks if pk not in tried)
                break
            tried.update(part)
            shown(len(tried))
    return done


def _parts(chosen: dict[State, list[object]]) -> Iterator[tuple[State, list[object]]]:
    """Yield the objects of each call of a handler."""
    for state, pks in chosen.items():
        size = state.batch or 1
        yield from ((state, pks[start : start + size]) for start in range(0, len(pks), size))


def _grouped(findings: list[Finding]) -> list[dict[str, object]]:
    """Return findings grouped by everything but the object and its message, the most frequent first."""
    groups: dict[object, list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.source, each.what, each.to, each.error, each.fingerprint), []).append(each)
    return [
        {
            "from": alike[0].source, "what": alike[0].what, "to": alike[0].to, "error": alike[0].error,
            "message": alike[0].message, "count": len(alike),
            "examples": [shown_key(each.pk) for each in alike[:EXAMPLES]],
        }
        for alike in sorted(groups.values(), key=len, reverse=True)
    ]  # fmt: skip


def _without_handler(model: type[StatorModel], rows: OperatorQuerySet) -> list[dict[str, object]]:
    """Return what a worker's scheduling loop would do; it may include objects that are also attempted."""
    meant = intents(rows, model.state_graph, load_settings().MAX_CRASHES)
    without = [each for each in meant if each.what != ATTEMPTED]
    counted = [(each, bounded(rows.filter(each.where).distinct())) for each in without]
    return [{"from": each.source, "what": each.what, "to": each.to, "count": count} for each, count in counted if count]


def _lines(data: Figures) -> Iterator[str]:
    yield f"{data['attempted']:,} of {data['model']} attempted; all changes were rolled back."
    if data["outcomes"]:
        yield ""
        outcomes = [[f"{each['count']:,}", _sentence(each), ", ".join(each["examples"])] for each in data["outcomes"]]
        yield from table(HEADS, outcomes)
    if data["more"]:
        yield "There are more; raise --limit to attempt them."
    if data["without_handler"]:
        yield ""
        yield "Without a handler:"
        heads = ["objects", "what would happen"]
        yield from table(heads, [[count_text(each["count"]), _sentence(each)] for each in data["without_handler"]])
    left = [f"{count_text(count)} {LEFT_ALONE[name]}" for name, count in data["left_alone"].items() if count]
    if left:
        yield ""
        yield f"Left alone: {', '.join(left)}."
    if data["gave_up"]:
        yield ""
        yield from _end(data)


def _end(data: Figures) -> Iterator[str]:
    late = data["gave_up"]
    pks = late["objects"]
    objects = f"{len(pks):,} objects, the first of them {pks[0]}," if len(pks) > 1 else pks[0]
    yield f"The handler of {late['state']} ran longer than {late['seconds']:g} s on {objects} and was ended."
    not_tried = ", ".join(f"{count:,} in {name}" for name, count in data["not_tried"].items())
    yield f"Not tried: {not_tried or 'nothing else'}. Raise --timeout, or exclude the object with --state or --where."


def _sentence(each: Figures) -> str:
    source, what, to = each["from"], each["what"], each["to"]
    message = f": {cut(each['message'], MESSAGE)}" if each.get("message") else ""
    if what == "stays":
        return f"{source} stays: try again{message}"
    if what == "fails":
        way = f"{source} -> {to}: " if to != source else f"{source} stays: "
        return f"{way}fails with {each['error']}{message}"
    if what == "deleted":
        return f"{source} is deleted"
    return f"{source} -> {to}{'' if what == 'moves' else f': {what}'}"
