"""Batches of outcomes: how they are grouped for writing, what is written with them, and the result of a write.

Reports and history are written in the same transaction as the outcomes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet, Value

from stator.db.claim import Claim
from stator.graph.durations import seconds_of
from stator.graph.failures import quarantined
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.reports import History, Report, failure_report, keep_reports, reason_report
from stator.signals import Move

Ended = tuple[Claim, Outcome]

# The target of an outcome that is no attempt; no state can have this name.
RELEASED = "<released>"


@dataclass(slots=True)
class Written:
    """The result of writing outcomes: accepted ones, claims that had ended, and outcomes to write again later."""

    moves: list[Move] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    lost: list[Claim] = field(default_factory=list)
    deferred: list[Ended] = field(default_factory=list)

    @classmethod
    def total(cls, parts: Iterable["Written"]) -> "Written":
        """Return several results as one."""
        written = cls()
        for part in parts:
            written.moves += part.moves
            written.failures += part.failures
            written.lost += part.lost
            written.deferred += part.deferred
        return written


@dataclass(frozen=True, slots=True)
class Moves:
    """The number of rows that a set-based move took, and the moves, which are listed only if somebody listens."""

    count: int
    listed: list[Move]


def by_kind(ended: list[Ended]) -> list[list[Ended]]:
    """Return outcomes in groups that one statement can write: of one kind, with at most one for each row."""
    groups: dict[tuple[str, str], list[Ended]] = defaultdict(list)
    for each in ended:
        groups[kind_of(each)].append(each)
    return [part for kind in sorted(groups) for part in _one_per_row(groups[kind])]


def _one_per_row(group: list[Ended]) -> Iterator[list[Ended]]:
    # A row occurs twice if its lease was lost and the same worker has claimed it again meanwhile.
    while group:
        latest = {claim.pk: (claim, outcome) for claim, outcome in group}
        yield list(latest.values())
        group = [ended for ended in group if latest[ended[0].pk][0] is not ended[0]]


def each_once(ended: Iterable[Ended]) -> Iterable[Outcome]:
    """Return the distinct outcomes: most claims share one object."""
    return {id(outcome): outcome for _, outcome in ended}.values()


def accepted_of(ended: list[Ended]) -> Written:
    """Return the result for outcomes of one kind that were all accepted."""
    written = Written()
    if ended and isinstance(ended[0][1], Moved):
        source, to = kind_of(ended[0])
        written.moves = [Move(claim.pk, source, to) for claim, _ in ended]
    if any(outcome.failure for outcome in each_once(ended)):
        failures = [(claim.pk, outcome.failure) for claim, outcome in ended]
        written.failures = [(pk, failure) for pk, failure in failures if failure]
    return written


def is_written(claim: Claim, outcome: Outcome, state: str, version: int, attempts: int, token: UUID | None) -> bool:
    """Return whether a row looks as this outcome would have left it; a moved row may have been claimed since."""
    if isinstance(outcome, Moved):
        return (state, version) == (outcome.to.name, claim.version + 1)
    counted = claim.attempt - isinstance(outcome, Released)
    return (state, version, attempts) == (claim.state.name, claim.version, counted) and token is None


def kind_of(ended: Ended) -> tuple[str, str]:
    """Return the state that an outcome leaves and the one it enters; outcomes with equal pairs are written together."""
    claim, outcome = ended
    if isinstance(outcome, Moved):
        return claim.state.name, outcome.to.name
    return claim.state.name, RELEASED if isinstance(outcome, Released) else ""


def write_key(ended: Ended) -> tuple[int, Any]:
    """Return the key by which outcomes of one kind are grouped into one ORM update."""
    claim, outcome = ended
    if isinstance(outcome, Waiting):
        return claim.token.int, (outcome.delay, outcome.failure is not None)
    return claim.token.int, (outcome.after if isinstance(outcome, Released) else 0.0, False)


def lease_key(claim: Claim) -> tuple[int, float]:
    """Return the key by which claims are grouped for renewal by one ORM update."""
    return claim.token.int, claim.lease


def changes_of(outcome: Outcome) -> columns.Changes:
    """Return the columns that an outcome changes."""
    if isinstance(outcome, Moved):
        return columns.entering(outcome.to)
    if isinstance(outcome, Released):
        return columns.releasing(outcome.after)
    failures: Any = F("state_failures") + 1 if outcome.failure else Value(0)
    return columns.staying(columns.after(outcome.delay), failures)


def keep(alias: str, label: str, kept: list[Ended]) -> None:
    """Write the latest error, or reason to wait, of each object."""
    if has_reports(kept):
        keep_reports(alias, label, [report for ended in kept if (report := report_of(label, *ended))])


def keep_history(alias: str, label: str, kept: Iterable[Ended], stays: Mapping[Any, float | None]) -> None:
    """Write a history row for each move and error; ``stays``: seconds in the state that was left, by key."""
    acts = [_act(label, claim, outcome, stays[claim.pk]) for claim, outcome in kept if _is_event(outcome)]
    if acts:
        History.objects.using(alias).bulk_create(acts)


def keep_moves(alias: str, label: str, worker: str, before: Iterable[tuple[Any, int, timedelta]], **moved: Any) -> None:
    """Write a history row for each ``(pk, version, stayed)`` that was moved without a handler."""
    History.objects.using(alias).bulk_create(
        History(
            model_label=label, object_pk=str(pk), kind=History.Kind.MOVE, version=version + 1, worker=worker,
            stay=seconds_of(stayed), **moved,
        )
        for pk, version, stayed in before
    )  # fmt: skip


def keep_quarantine(alias: str, label: str, rows: QuerySet[Any], held: dict[Any, str], most: int) -> None:
    """Write a report for each row whose crash was its last; ``held`` maps rows to the workers that held them."""
    crashed = rows.filter(pk__in=list(held), state_crashes__gte=most).values_list("pk", "state")
    keep_reports(alias, label, [failure_report(label, pk, state, quarantined(most), held[pk]) for pk, state in crashed])


def has_reports(ended: list[Ended]) -> bool:
    """Return whether any of these outcomes has an error or a reason."""
    return any(outcome.failure is not None or outcome.reason for outcome in each_once(ended))


def report_of(label: str, claim: Claim, outcome: Outcome) -> Report | None:
    """Return the report of an outcome with an error or a reason, else None."""
    worker = claim.operations.worker_id
    if failure := outcome.failure:
        return failure_report(label, claim.pk, claim.state.name, failure, worker)
    reason = outcome.reason
    return reason_report(label, claim.pk, claim.state.name, reason, worker) if reason else None


def _is_event(outcome: Outcome) -> bool:
    return isinstance(outcome, Moved) or outcome.failure is not None


def _act(label: str, claim: Claim, outcome: Outcome, stay: float | None) -> History:
    moved = isinstance(outcome, Moved)
    failure = outcome.failure
    return History(
        model_label=label,
        object_pk=str(claim.pk),
        kind=History.Kind.MOVE if moved else History.Kind.ERROR,
        version=claim.version + moved,
        source=claim.state.name,
        to=outcome.to.name if isinstance(outcome, Moved) else "",
        worker=claim.operations.worker_id,
        claimed=claim.attempted,
        duration=claim.duration,
        stay=stay,
        attempts=claim.attempt,
        error=f"{failure.kind}: {failure.message}" if failure else "",
        fingerprint=failure.fingerprint if failure else "",
    )


# Types whose values an array carries without a change.
PLAIN_TYPES = {
    "bigint", "boolean", "date", "double precision", "integer", "interval", "jsonb", "smallint", "text",
    "timestamp with time zone", "uuid",
}  # fmt: skip
_LIMITED_TEXT = re.compile(r"varchar(\(\d+\))?$")


def names_saved(group: list[Ended]) -> tuple[str, ...]:
    """Return the fields to write for outcomes of one kind; none if no outcome has values."""
    names: tuple[str, ...] = group[0][0].state.saves
    # Most states save nothing, so their outcomes need not be checked.
    return names if names and any(outcome.values for _, outcome in group) else ()


def array_types(model: Any, connection: Any, names: tuple[str, ...]) -> list[str] | None:
    """Return the type of each field's column without its limit, to which a cast would cut; None if one is not plain."""
    if model._meta.parents:
        return None
    types = [_LIMITED_TEXT.sub("text", model._meta.get_field(name).rel_db_type(connection) or "") for name in names]
    return types if set(types) <= PLAIN_TYPES else None


def saved_arrays(model: Any, connection: Any, group: list[Ended], names: tuple[str, ...]) -> list[list[Any]]:
    """Return an array of flags for outcomes with values, then one array of values for each field."""
    values = [outcome.values for _, outcome in group]
    arrays: list[list[Any]] = [[given is not None for given in values]]
    for name in names:
        prepare = model._meta.get_field(name).get_db_prep_save
        arrays.append([None if given is None else prepare(given[name], connection) for given in values])
    return arrays


def has_expressions(group: list[Ended]) -> bool:
    """Return whether a handler set an expression that only the database can evaluate."""
    return any(
        hasattr(value, "resolve_expression") for _, outcome in group for value in (outcome.values or {}).values()
    )
