"""The problem that objects are paused: of one object, of many, and what ``status`` says."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from stator.extensions.pauses.condition import Paused, Pauses
from stator.extensions.pauses.models import NAMED, Pause, described
from stator.extensions.problems.causes import about, effects, hashed, of_models, waits
from stator.extensions.problems.facts import Fact, Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.many import Many
from stator.extensions.problems.sentences import Said
from stator.extensions.problems.surveyed import Surveyed
from stator.graph.durations import seconds_of, span
from stator.graph.states import State
from stator.rows.clock import moment_text
from stator.rows.meta import graph_of
from stator.rows.problem import FORGOTTEN, WARNING, AdminAction, Problem
from stator.scopes import are_apart
from stator.texts import JsonObject, counted


class HoldingPauses(Fact[list[Pause]]):
    """The pauses that hold one object."""

    holds_up = True

    def __init__(self, model: type[Model], using: str) -> None:
        super().__init__(model, using)
        self._own = [pause for pause in Paused.in_force(using) if pause.model_label == model._meta.label_lower]

    def columns(self, rows: QuerySet[Model], key: object) -> Mapping[str, object]:
        return {
            f"stator_held_{pause.pk}": Exists(rows.filter(pause.condition(self.model), pk=key))
            for pause in self._own
            if pause.where
        }

    def running(self, states: list[State]) -> list[State]:
        return Pauses.of(self.model._meta.label_lower, self._own).running(states)

    def known(self, facts: Facts) -> list[Pause]:
        state = facts.state
        if state is None or not state.automatic:
            return []
        return [
            pause
            for pause in self._own
            if pause.state in ("", state.name) and (not pause.where or facts.row[f"stator_held_{pause.pk}"])
        ]


def paused(facts: Facts) -> Iterator[Said]:
    """Say of each pause who made it, what it holds, until when, and why."""
    for pause in facts.of(HoldingPauses):
        left = (pause.until - facts.now).total_seconds() if pause.until else None
        what = pause.state or "the model"
        where = f" where {', '.join(f'{name}={value!r}' for name, value in pause.where.items())}" if pause.where else ""
        if NAMED in pause.where:
            what, where = f"this object{f' in {pause.state}' if pause.state else ''}", ""
        by = f" by {pause.actor}" if pause.actor else ""
        until = "until it is resumed" if left is None else f"for another {span(left)}"
        why = f": {pause.reason}" if pause.reason else ""
        numbers = {"pause": pause.pk, "actor": pause.actor, "reason": pause.reason, "until": left}
        yield f"Paused{by}: {what}{where}, {until}{why}.", numbers


def rows_paused(many: Many) -> Q:
    """Return the rows that a pause holds; a pause of a state that workers do not attempt holds none."""
    pauses = Pauses.of(many.model._meta.label_lower, Paused.in_force(many.using))
    states = graph_of(many.model).automatic_states
    held = many.among(states.difference(pauses.running(states)))
    if partial := pauses.held(many.model, states):
        # In a subquery, so that a join does not count a row twice. Over several nodes, a pause has no joins.
        apart = are_apart(many.model, many.using)
        held |= partial if apart else Q(Exists(many.rows.filter(partial, pk=OuterRef("pk"))))
    return held


def paused_in(one: Surveyed) -> Iterator[Problem]:
    """Find pauses."""
    return (_of_pause(one, pause) for pause in one.stored.get(Pause, []))


def _of_pause(one: Surveyed, pause: Any) -> Problem:
    age = seconds_of(pause.read_at - pause.created)
    states = [] if pause.where else [state for state in one.depths.automatic if pause.state in ("", state.name)]
    ready = sum(state.ready for state in states)
    waiting = f"; {waits(ready)}" if ready else ""
    by = f" by {pause.actor}" if pause.actor else ""
    until = f", until {moment_text(pause.until)}" if pause.until else ", without an end"
    why = f" ({pause.reason})" if pause.reason else ""
    where = "".join(f" --where {quote(f'{name}={json.dumps(value)}')}" for name, value in pause.where.items())
    return about(
        one, f"paused: {_paused_part(pause)}{by} for {span(age)}{until}{why}{waiting}{effects(states)}",
        code="stale_pause" if age > FORGOTTEN and pause.until is None else "", detail=_paused_objects(one, pause),
        count=ready, since=age, numbers={"pause": pause.pk},
        actions=(AdminAction("Resume", Pause._meta.label_lower, "stator_end", (pause.pk,)),),
        command=f"manage.py stator resume {one.label}{f' --state {pause.state}' if pause.state else ''}{where}",
    )  # fmt: skip


def _paused_part(pause: Pause) -> str:
    if isinstance(named := pause.where.get(NAMED), list):
        return counted(len(named), "object")
    if pause.where:
        return f"some objects{f' in {pause.state}' if pause.state else ''}"
    return pause.state or "all states"


def _paused_objects(one: Surveyed, pause: Pause) -> str:
    if isinstance(named := pause.where.get(NAMED), list):
        return hashed(named)
    values = ", ".join(f"{name}={value}" for name, value in pause.where.items())
    return f"{values}: {trouble}" if (trouble := pause.trouble(one.model)) else values


def _listed(one: Surveyed) -> list[JsonObject]:
    return [described(pause) for pause in one.stored.get(Pause, [])]


def _cell(listed: list[JsonObject]) -> str:
    paused = Counter(pause["state"] or ("where" if pause["where"] else "all") for pause in listed)
    return ",".join(f"{what} x{count}" if count > 1 else what for what, count in paused.items())


PAUSED = ProblemKind.of_one(
    paused,
    holds=lambda facts: bool(facts.of(HoldingPauses)),
    rows=rows_paused,
    fact=HoldingPauses,
    after="quarantined",
    # The person who made it may be unknown or gone.
    remedy="Check whether its reason still holds, then resume.",
    level=WARNING,
    find=of_models(paused_in),
    signs=lambda using: [Pause.objects.using(using).active()],
    rank=6,
    keeps="paused",
    listed=_listed,
    cell=_cell,
)
