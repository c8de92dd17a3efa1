"""Objects that wait behind those with one value of a field, as the orders of one tenant behind those of another."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import CharField, ForeignKey, IntegerField, Model, Q, QuerySet, UUIDField, Value
from django.db.models.expressions import Combinable

from stator.conf import load_settings
from stator.db.conditions import Stored
from stator.graph.durations import seconds_of, span
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.claimable import claimable
from stator.rows.clock import Now
from stator.rows.indexes import line_of_all, place_in_line
from stator.rows.meta import options_of
from stator.rows.problem import TOO_LONG, AdminAction, Problem
from stator.rows.state_column import state_field
from stator.statements import united
from stator.survey.numbers import Depths
from stator.texts import counted, listed

if TYPE_CHECKING:
    from stator.extensions.problems.surveyed import Surveyed

# Objects that are read at the head and at the end of a line; how many a value needs at the head, and which share.
FIRST, LEAST, SHARE = 200, 50, 0.8

# Seconds for which the command pauses the objects of a value.
PAUSED = 600


class InLine(NamedTuple):
    """A ready object: since when it waits, when it was read, and its values."""

    since: datetime
    now: datetime
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Starving:
    """A value of the field ``name`` that ``holding`` of the ``first`` objects in line have, and who waits behind them.

    ``others``: the other values, the longest wait first; ``waited``: that wait in seconds.
    """

    name: str
    value: object
    holding: int
    first: int
    others: tuple[object, ...]
    waited: float

    @property
    def sentence(self) -> str:
        """What holds the line, and for how long others have waited."""
        values = "another value waits" if len(self.others) == 1 else f"{counted(len(self.others), 'other value')} wait"
        return (
            f"one {self.name} holds the line: {self.holding:,} of the first {self.first:,} objects have it; {values} "
            f"behind them, the first for {span(self.waited)}"
        )

    @property
    def detail(self) -> str:
        """The value, and those that wait."""
        return f"{self.name}={self.value}; behind it {listed(self.others)}"

    @staticmethod
    def is_possible(head: Sequence[InLine]) -> bool:
        """Return whether one value holds a line, by its first objects; if not, its last ones need not be read."""
        return any(_holding(head, number) for number in range(len(head[0].values) if head else 0))


def line_ends(ends: Sequence[QuerySet[Model]], since: Combinable, *names: str) -> list[list[InLine]]:
    """Return the first rows of each of some ordered querysets; one statement, where the database unites queries.

    ``since``: the expression for when a row began to wait. ``names``: the fields with the values.
    """
    parts = [end.values_list(Value(n), since, Now(), *names)[:FIRST] for n, end in enumerate(ends)]
    lines: list[list[InLine]] = [[] for _ in parts]
    for n, at, now, *values in united(parts) if parts else ():
        lines[n].append(InLine(at, now, tuple(values)))
    return lines


def _holding(head: Sequence[InLine], number: int) -> tuple[object, int] | None:
    """Return the value that most of the first objects have, and how many have it; None if there is no such value."""
    [(value, holding)] = Counter(one.values[number] for one in head).most_common(1) or [(None, 0)]
    return None if value is None or holding < max(LEAST, SHARE * len(head)) else (value, holding)


def starving(names: Sequence[str], head: Sequence[InLine], tail: Sequence[InLine]) -> Starving | None:
    """Return what holds a line, by its first and its last objects; None if no value does, or nobody waits for long.

    ``names``: those of their values, the first that fits is returned.
    """
    for number, name in enumerate(names):
        if (held := _holding(head, number)) is None:
            continue
        value, holding = held
        waits: dict[object, float] = {}
        for one in (*head, *tail):
            if (other := one.values[number]) not in (None, value):
                waits[other] = max(waits.get(other, 0.0), seconds_of(one.now - one.since))
        others = sorted(waits, key=lambda other: (-waits[other], str(other)))
        if others and waits[others[0]] > TOO_LONG:
            return Starving(name, value, holding, len(head), tuple(others), waits[others[0]])
    return None


def starved(one: "Surveyed") -> Iterator[Problem]:
    """Find a model of which the objects with one value of a field hold up the others."""
    if not (starving := one.starving):
        return
    label = one.model._meta.label_lower
    where = quote(f"{starving.name}={json.dumps(starving.value, default=str)}")
    yield Problem(
        "", starving.sentence, {"field": starving.name, "others": len(starving.others)},
        f'let the values take turns by fair_by = "{starving.name}" in StatorMeta and makemigrations; until then pause '
        "the objects of this value", where=one.label, model=label, detail=starving.detail,
        count=len(starving.others), since=starving.waited,
        actions=(AdminAction("List", label, query=(("condition", "ready"),)),),
        command=f"manage.py stator pause {one.label} --where {where} --for {PAUSED} --reason 'others wait'",
    )  # fmt: skip


# The most fields that are looked at.
FIELDS = 10


def starving_in(rows: OperatorQuerySet[StatorModel], depths: Depths, said: Iterable[Stored]) -> Starving | None:
    """Return what holds the line of a model whose values do not take turns; none unless objects wait for long.

    Indexes ``st_ready`` and ``st_age``. ``said``: what stored conditions say of the model.
    """
    model: type[StatorModel] = rows.model
    options = options_of(model)
    names = _names(model)
    if options.fair_by or options.spread or not names or not depths.is_behind or depths.ready <= LEAST:
        return None
    states, held = list(model.state_graph.automatic_states), Q()
    for each in said:
        states = each.running(states)
        held |= each.held(model, states)
    wanted = claimable(state_field(model), [state.name for state in states], load_settings())
    line = rows.filter(wanted, ~held if held else Q()).order_by(*line_of_all(model))
    [head] = line_ends([line], place_in_line(), *names)
    if not Starving.is_possible(head):
        return None
    [tail] = line_ends([line.reverse()], place_in_line(), *names)
    return starving(names, head, tail)


def _names(model: type[Model]) -> list[str]:
    """Return the names of fields that ``fair_by`` may name: relations first, as they lead to customers."""
    priority, state = options_of(model).priority or "", state_field(model)
    apart = {state.name, *FRAMEWORK_COLUMNS, priority.removeprefix("-")}
    own = [field for field in model._meta.concrete_fields if field.model is state.model and field.name not in apart]
    fields = [field for field in own if not (field.unique or field.null)]
    relations = [field.name for field in fields if isinstance(field, ForeignKey)]
    plain = [field.name for field in fields if isinstance(field, CharField | IntegerField | UUIDField)]
    return [*relations, *plain][:FIELDS]
