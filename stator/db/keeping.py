"""Reports and history: written in the same transaction as the outcomes."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet

from stator.db.claim import Claim
from stator.db.written import Ended, each_once
from stator.graph.durations import seconds_of
from stator.graph.failures import quarantined
from stator.graph.outcomes import Moved, Outcome
from stator.rows.reports import History, Report, failure_report, keep_reports, reason_report


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
