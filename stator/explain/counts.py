"""Counts of rows by the first reason why they do not move, computed by the database."""

from collections import Counter
from typing import Any

from django.db import router
from django.db.models import Case, CharField, Count, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Now

from stator.conf import load_settings
from stator.rows import columns
from stator.rows.moves import owner_of
from stator.rows.pauses import Pause, Pauses, read_pauses
from stator.rows.reports import reports_of
from stator.rows.waits import waiting as waiting_for_others
from stator.rows.workers import live_workers

# The database's codes for rows that only wait for a worker; the final reason depends on their state.
IN_TURN, SUSPECT, DUE = "in_turn", "crashed", "due"


def explain_counts(queryset: QuerySet[Any]) -> dict[str, int]:
    """Return the number of rows by the code of their first reason, most first; in a handful of statements."""
    owner = owner_of(queryset.model)
    using = getattr(queryset, "_db", None) or router.db_for_write(owner)
    active = read_pauses(using)
    reason = Case(*_cases(owner, using, active), default=Value(DUE), output_field=CharField())
    rows: QuerySet[Any] = QuerySet(owner, using=using).filter(pk__in=queryset.order_by().values("pk"))
    found = rows.annotate(stator_reason=reason).values_list("state", "stator_reason").annotate(Count("pk"))
    worked_on = any(worker.serves(owner._meta.label_lower) for worker in live_workers(using))
    full = _full_states(owner, using)
    counts: Counter[str] = Counter()
    for state, code, count in found.order_by():
        counts[_refined(code, state in full, worked_on)] += count
    return dict(counts.most_common())


def _refined(code: str, full: bool, worked_on: bool) -> str:
    if code in (IN_TURN, SUSPECT, DUE) and not worked_on:
        return "no_worker"
    if code == IN_TURN:
        return "at_limit" if full else "in_line"
    return code


def _cases(owner: Any, using: str, active: list[Pause]) -> list[When]:
    """Return the reasons in their order; the conditions correspond to those of :mod:`stator.explain.order`."""
    graph = owner.state_graph
    automatic = [state.name for state in graph.automatic_states]
    waiting = Q(state_next_attempt__gt=Now())
    said = reports_of(owner, using, error="", state=OuterRef("state"))
    conditions: list[tuple[Any, str]] = [
        (Q(state__in=[state.name for state in graph.terminal_states]), "terminal"),
        (~Q(state__in=list(graph.states)), "unknown_state"),
        (Q(state_claim__isnull=False, state_locked_until__lte=Now()), "lease_lost"),
        (Q(state_claim__isnull=False), "leased"),
        (Q(state__in=automatic, state_crashes__gte=load_settings().MAX_CRASHES), "quarantined"),
        *((held, "paused") for held in _held(owner, using, active, automatic)),
        (~Q(state__in=automatic), "external"),
        (waiting_for_others(owner, using), "waits_for"),
        (columns.parked(), DUE),
        (waiting & Q(state_failures__gt=0), "backoff"),
        (waiting & Exists(said), "last_said"),
        (waiting, "not_due"),
        (Q(state_ready=True, state_crashes__gte=load_settings().alone_from), SUSPECT),
        (Q(state_ready=True), IN_TURN),
    ]
    return [When(condition, then=Value(code)) for condition, code in conditions]


def _held(owner: Any, using: str, active: list[Pause], automatic: list[str]) -> list[Any]:
    """Return, for each pause of the model, a condition for the rows that it holds."""
    rows: QuerySet[Any] = QuerySet(owner, using=using)
    pauses = Pauses.of(owner._meta.label_lower, active)
    whole = automatic if pauses.everything else sorted(pauses.states.intersection(automatic))
    held: list[Any] = [Q(state__in=whole)] if whole else []
    for pause in pauses.partial:
        within = Q(state__in=[pause.state] if pause.state else automatic)
        # In a subquery, so that a join does not count a row twice.
        held.append(within & Exists(rows.filter(pause.condition(owner), pk=OuterRef("pk"))))
    return held


def _full_states(owner: Any, using: str) -> set[str]:
    """Return the states whose ``concurrency`` limit is reached."""
    limits = {state.name: state.concurrency for state in owner.state_graph.automatic_states if state.concurrency}
    if not limits:
        return set()
    rows: QuerySet[Any] = QuerySet(owner, using=using)
    held = rows.filter(state_claim__isnull=False, state__in=list(limits))
    claimed = held.order_by().values_list("state").annotate(Count("pk"))
    return {name for name, count in claimed if count >= limits[name]}
