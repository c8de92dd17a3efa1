"""The problem that a state is at its limit: of one object, and of many."""

from collections.abc import Collection, Iterator

from django.db.models import Count, Model, Q, QuerySet

from stator.conf import load_settings
from stator.extensions.problems.causes import (
    ELLIPSIS,
    SHOWN,
    about,
    all_in,
    done_when,
    effects,
    free_in,
    hashed,
    keys_as_arguments,
    waits,
)
from stator.extensions.problems.facts import Fact, Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.many import Many
from stator.extensions.problems.sentences import Said, turn_of
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.graph.durations import span
from stator.graph.states import State
from stator.rows.meta import graph_of
from stator.rows.problem import TOO_LONG, WARNING, AdminAction, Problem
from stator.rows.state_column import state_field
from stator.survey.numbers import Held, InState


class Full(Fact[tuple[int, int] | None]):
    """How many objects of the state are claimed and may be, for an object that has to wait for one of them to end."""

    def together(self, state: State, states: list[State]) -> list[State]:
        return [state] if state.concurrency else [other for other in states if not other.concurrency]

    def known(self, facts: Facts) -> tuple[int, int] | None:
        limit = facts.state.concurrency if facts.state else None
        if not (limit and facts.in_line):
            return None
        rows: QuerySet[Model] = QuerySet(self.model, using=self.using)
        held = rows.filter(state_claim__isnull=False, **state_field(self.model).at(facts.name))
        claimed = held.values("pk")[:limit].count()
        return (claimed, limit) if claimed >= limit else None


def at_limit(facts: Facts) -> Iterator[Said]:
    """Say the limit of the state, and when it is the object's turn."""
    if full := facts.of(Full):
        claimed, limit = full
        turn, of_turn = turn_of(facts)
        numbers = {"state": facts.name, "claimed": claimed, "limit": limit}
        yield f"{facts.name} is at its limit: {claimed} of {limit} are claimed{turn}.", numbers | of_turn


def full_states(many: Many) -> list[str]:
    """Return the states whose ``concurrency`` limit is reached."""
    limits = {state.name: state.concurrency for state in graph_of(many.model).automatic_states if state.concurrency}
    if not limits:
        return []
    field = state_field(many.model)
    held = many.rows.filter(state_claim__isnull=False, **field.among(limits))
    claimed = held.order_by().values_list(field.name).annotate(Count("pk"))
    return [name for value, count in claimed if count >= limits[name := field.name_of(value)]]


def full_limits(survey: Survey) -> Iterator[Problem]:
    """Find states whose limit holds up further objects; only attempts that seem to hang are to be unlocked."""
    orphaned = survey.workers.orphaned
    for one in survey.models.values():
        for state in _full(one):
            yield _of_full(one, state, orphaned)


def _of_full(one: Surveyed, state: InState, orphaned: Collection[tuple[str, object]]) -> Problem:
    label = one.model._meta.label_lower
    held = sorted((each for each in one.depths.held if each.state == state.name), key=lambda row: -row.running)
    # Leases that are over, and leases of silent workers, have a problem of their own.
    alive = [row for row in held if row.late <= 0 and (label, row.pk) not in orphaned]
    hanging = tuple(row.pk for row in alive if _seems_to_hang(state, row))[:SHOWN]
    unlock = [AdminAction(f"Unlock{ELLIPSIS}", label, "stator_unlock", hanging)] if hanging else []
    done, graph = done_when(one, state.ready, [state]), graph_of(one.model)
    return about(
        one, f"{waits(state.ready)} in {state.name}{f'{done};' if done else ':'} limit "
        f"{len(held):,} of {_limit(state):,}{effects([state])}", count=state.ready, since=state.waited,
        detail=f"held by {hashed([row.pk for row in held])}, the longest for {span(held[0].running)}" if held else "",
        actions=(
            free_in(one, "ready", [state.name]), all_in(one, "Holders", "leased", states=[state.name]), *unlock
        ), numbers={"limit": _limit(state), "claimed": len(held)},
        remedy=f"{'unlock attempts that hang; else ' * bool(unlock)}wait, or raise concurrency of {state.name} in "
        f"{graph.__module__}.{graph.__name__}",
        **({"command": f"manage.py stator unlock {one.label} {keys_as_arguments(hanging)}"} if hanging else {}),
    )  # fmt: skip


def _seems_to_hang(state: InState, held: Held) -> bool:
    """Return whether an attempt takes longer than its state expects, or half of the time that it may take."""
    known = state.state
    most = (known and known.expect_within) or ((known and known.max_runtime) or load_settings().MAX_RUNTIME) / 2
    return held.running > most


def _full(one: Surveyed) -> list[InState]:
    return [
        state
        for state in one.depths.automatic
        if (limit := _limit(state)) and state.leased >= limit and (state.waited or 0.0) > TOO_LONG
    ]


def _limit(state: InState) -> int:
    """Return how many objects of a state may be claimed at once; 0 for any number."""
    return (state.state.concurrency or 0) if state.state else 0


AT_LIMIT = ProblemKind.of_one(
    at_limit,
    holds=lambda facts: facts.of(Full) is not None,
    rows=lambda many: Q(state_ready=True) & many.among(full_states(many)),
    fact=Full,
    after="crashed",
    remedy="Wait, or raise concurrency of the state in its graph.",
    keeps="at the limit of their state",
)
FULL_LIMIT = ProblemKind(
    "full_limit",
    after="slow",
    level=WARNING,
    rank=1,
    find=full_limits,
    covers=lambda one: [state.name for state in _full(one)],
    remedy="wait, or have a developer raise the limit",
)
