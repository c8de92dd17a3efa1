"""Looks at the rows of a model in shadow, part by part, and writes down what workers would do to them.

It reads the model's table and writes to its own. A part is a range of keys, or of open lines, so no statement depends
on how many rows are due. Other code may move an object twice between two looks; then the first move is not seen.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from django.db.models import Case, CharField, F, IntegerField, Min, Model, Q, QuerySet, Value, When

from stator.commands.intents import ATTEMPTED, RENAMED, Intent, intents
from stator.db.conditions import Condition
from stator.db.interface import Operations
from stator.db.repeat import retrying
from stator.extensions.shadow.models import ShadowLine, name_of_handler
from stator.rows.clock import Now
from stator.rows.keys import key_names, keys_in, keys_of
from stator.rows.locking import most_keys
from stator.rows.meta import option_of
from stator.statements import is_one_of
from stator.worker.duties import Duty, all_rows

if TYPE_CHECKING:
    from stator.graph import StateGraph

# Keys of a part of the table, of which most may be of objects that are done; lines and objects of one statement.
KEYS, AT_ONCE = 5000, 1000

# The most seconds that one pass looks at one model; the next goes on from there.
SECONDS = 2.0


@dataclass(slots=True)
class ShadowWalk:
    """How far the looks at one model are: behind which line and which key, and which of both the pass has ended."""

    line: int = 0
    key: object = None
    over: set[str] = field(default_factory=set)
    began: float = 0.0


# By scope and model; the thread of duties alone uses it.
_walks = defaultdict[object, ShadowWalk](ShadowWalk)


class Judged(NamedTuple):
    """A row as it is now. ``act``, ``to`` and ``since``: what a worker would do, as a line has it."""

    text: str
    source: str
    act: str
    to: str
    since: datetime | None
    now: datetime


class InShadow(Condition):
    """Rows that workers leave alone, but look at: without it, a schema that has no others would rest."""

    @classmethod
    def bind(cls, store: Operations, earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if store.state_field.left else None

    def to_watch(self) -> list[QuerySet[Model]]:
        store = self._store
        rows = store.undivided.filter(**store.state_field.among(_left_again(store)))
        # Of rows that were moved to where they stay, or are gone, the lines are open. They are of no part of a table.
        return [rows] if store.division.is_divided else [rows, _open(store)]


def look(operations: Operations, limit: int) -> int:
    """Look at one more part of the lines and of the rows; return ``limit`` if this pass has more."""
    walk = _walks[operations.scope, operations.label]
    walk.began = walk.began or monotonic()
    if "lines" not in walk.over:
        _look_at_lines(operations, walk)
    if "rows" not in walk.over:
        _look_at_rows(operations, walk)
    return limit if len(walk.over) < 2 and monotonic() - walk.began < SECONDS else 0


def end_pass(operations: Operations) -> None:
    """Have the next pass go on, or begin anew where this one came to the end."""
    walk = _walks[operations.scope, operations.label]
    walk.over.clear()
    walk.began = 0.0


def look_at_all(operations: Operations) -> None:
    """Look at all lines and all rows once, from the beginning."""
    walk = ShadowWalk()
    while "lines" not in walk.over:
        _look_at_lines(operations, walk)
    while "rows" not in walk.over:
        _look_at_rows(operations, walk)


def _look_at_lines(operations: Operations, walk: ShadowWalk) -> None:
    most = most_keys(operations.model, AT_ONCE)
    with operations.reading():
        open_lines = _open(operations).filter(pk__gt=walk.line).order_by("pk")
        lines = list(open_lines[:most])
        keys = [key for key, _ in keys_of(operations.model, (line.object_pk for line in lines))]
        rows = {row.text: row for row in _judged(operations, _rows_of(operations, keys))} if keys else {}
    _follow(operations, lines, rows)
    if len(lines) < most:
        walk.line = 0
        walk.over.add("lines")
    else:
        walk.line = lines[-1].pk


def _look_at_rows(operations: Operations, walk: ShadowWalk) -> None:
    rest = operations.undivided if walk.key is None else operations.undivided.filter(pk__gt=walk.key)
    in_order = rest.order_by(*key_names(operations.model))
    with operations.reading():
        [last] = keys_in(in_order[KEYS - 1 : KEYS]) or [None]
        part = rest if last is None else rest.filter(pk__lte=last)
        rows = list(_judged(operations, _to_watch(operations, part)))
    for start in range(0, len(rows), AT_ONCE):
        _open_lines(operations, rows[start : start + AT_ONCE])
    walk.key = last
    if last is None:
        walk.over.add("rows")


def _rows_of(operations: Operations, keys: Collection[object]) -> QuerySet[Model]:
    return operations.undivided.filter(is_one_of(operations.undivided, keys))


def _open(operations: Operations) -> QuerySet[ShadowLine]:
    return ShadowLine.objects.using(operations.alias).filter(model_label=operations.label, ended=0)


def _judged(operations: Operations, rows: QuerySet[Model]) -> Iterator[Judged]:
    """Yield what workers would do to rows; one statement."""
    column, meanings = operations.state_field, _intents(operations)
    number = Case(
        *(When(each.where, then=Value(place)) for place, each in enumerate(meanings)),
        default=Value(len(meanings)), output_field=IntegerField(),
    )  # fmt: skip
    since = [Now() if each.since is None else each.since for each in meanings]
    columns: list[Any] = ["pk", column.name, _adopted(operations), number, Now(), *since]
    for pk, value, adopted, place, now, *times in rows.order_by().values_list(*columns):
        source = column.name_of(value)
        meant = meanings[place] if place < len(meanings) and adopted in ("", source) else None
        act = _act(column.declared, meant) if meant else ""
        yield Judged(str(pk), adopted or source, act, meant.to if meant else "", times[place] if meant else None, now)


def _adopted(operations: Operations) -> Case:
    """Return the state that a row has by ``StatorMeta.adopts``, by the columns that the old code writes; or ""."""
    adopts = option_of(operations.model, "adopts") or {}
    said = (When(where, then=Value(str(state))) for state, where in adopts.items())
    return Case(*said, default=Value(""), output_field=CharField())


def _intents(operations: Operations) -> list[Intent]:
    """Return what workers would do to rows in shadow."""
    left, graph = operations.state_field.left, operations.state_field.declared
    meant = intents(operations.undivided, graph, operations.settings.MAX_CRASHES)
    return [each for each in meant if each.source in left or (each.what == RENAMED and each.to in left)]


def _to_watch(operations: Operations, rows: QuerySet[Model]) -> QuerySet[Model]:
    """Return the rows in shadow that will leave their state, by whatever moves them."""
    left_again = _left_again(operations)
    rest = Q(**operations.state_field.among(left_again))
    watched = rows.filter(reduce(or_, (each.where for each in _intents(operations)), rest))
    if not option_of(operations.model, "adopts"):
        return watched
    return watched.alias(stator_adopted=_adopted(operations)).filter(stator_adopted__in=["", *left_again])


def _left_again(operations: Operations) -> list[str]:
    states = operations.state_field.declared.states
    return sorted(name for name in operations.state_field.left if not states[name].terminal)


def _act(graph: "type[StateGraph]", intent: Intent) -> str:
    return name_of_handler(graph.states[intent.source]) if intent.what == ATTEMPTED else intent.what


@retrying
def _open_lines(operations: Operations, rows: list[Judged]) -> None:
    """Write lines for the rows that have none."""
    lines = ShadowLine.objects.using(operations.alias).filter(
        model_label=operations.label, object_pk__in=[row.text for row in rows]
    )
    with operations.reading():
        known = dict(lines.order_by().values_list("object_pk").annotate(Min("ended")))
    new = [row for row in rows if known.get(row.text) != 0]
    if new:
        with operations.transaction():
            _write(operations, [(row, row.now if row.text in known else row.since) for row in new])


def _write(operations: Operations, rows: list[tuple[Judged, datetime | None]]) -> None:
    lines = ShadowLine.objects.using(operations.alias)
    lines.bulk_create(
        [
            ShadowLine(
                model_label=operations.label, object_pk=row.text, source=row.source, act=row.act, to=row.to,
                due=due if row.act else None,
            )
            for row, due in sorted(rows, key=lambda each: each[0].text)
        ],
        # Another worker may have seen them, too.
        ignore_conflicts=True,
    )  # fmt: skip


@retrying
def _follow(operations: Operations, lines: list[ShadowLine], rows: dict[str, Judged]) -> None:
    """Close the lines of rows that were moved or are gone; change the lines of rows to which something else is due."""
    moved, changed, done = defaultdict[str, list[int]](list), list[ShadowLine](), list[int]()
    left, renames = operations.state_field.left, operations.state_field.declared.renames
    # Rows may still have the former name of a state.
    names = {*left, *(former for former, state in renames.items() if state.name in left)}
    left_again, again = _left_again(operations), list[tuple[Judged, datetime | None]]()
    for line in lines:
        row = rows.get(line.object_pk)
        if line.source not in names:
            # Workers have the state again.
            done.append(line.pk)
        elif row is None or row.source != line.source:
            moved[row.source if row else ""].append(line.pk)
            if row and (row.act or row.source in left_again):
                again.append((row, row.now))
        elif (row.act, row.to) != (line.act, line.to):
            line.act, line.to, line.due = row.act, row.to, row.since
            changed.append(line)
    if not (moved or changed or done):
        return
    with operations.transaction():
        for to, pks in moved.items():
            _open(operations).filter(pk__in=pks).update(ended=F("pk"), closed=Now(), moved_to=to)
        _open(operations).bulk_update(changed, ["act", "to", "due"])
        _open(operations).filter(pk__in=done).delete()
        _write(operations, again)


LOOK = Duty(
    "shadow",
    look,
    needed=lambda operations: bool(operations.state_field.left),
    gives_way=True,
    parts=all_rows,
    ended=end_pass,
)
