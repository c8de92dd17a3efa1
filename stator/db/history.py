"""Reports and history of outcomes, of moves without a handler and of lost leases, written in their transactions."""

from collections.abc import Iterable, Mapping

from django.db.models import Model, QuerySet

from stator.db.interface import Claim, Ended
from stator.db.values import Pk
from stator.graph.attempt_log import AttemptLog
from stator.graph.failures import HUNG, Failure, bounded, lease_lost, quarantined, text_of
from stator.graph.outcomes import Moved, Outcome
from stator.rows.reports import REASON_LENGTH, History, Report, failure_report, keep_reports
from stator.rows.workers import worker_of


def keep_history(alias: str, label: str, kept: Iterable[Ended], stays: Mapping[Pk, float | None]) -> None:
    """Write a history row for each move and error; ``stays``: seconds in the state that was left, by key.

    Of models with ``StatorMeta.logs``, also for each other attempt that logged something.
    """
    acts = [
        _act(label, claim, outcome, stays[claim.pk])
        for claim, outcome in kept
        if _is_event(outcome) or _stored_log(claim)
    ]
    if acts:
        History.objects.using(alias).bulk_create(acts)


def keep_quarantine(alias: str, label: str, rows: QuerySet[Model], held: dict[Pk, str], most: int) -> None:
    """Write a report for each row that its crash has quarantined; ``held`` maps rows to the workers that held them."""
    crashed = list(rows.filter(pk__in=list(held), state_crashes__gte=most).values_list("pk", "state"))
    if not crashed:
        return
    # The workers that ended themselves have said where their attempts hung.
    reports = Report.objects.using(alias).filter(model_label=label, object_pk__in=[str(pk) for pk, _ in crashed])
    said = {pk: rest for pk, *rest in reports.filter(error=HUNG).values_list("object_pk", "message", "traceback")}
    keep_reports(
        alias, label,
        [
            failure_report(label, pk, state, quarantined(most, *said.get(str(pk), ())), held[pk])
            for pk, state in crashed
        ],
    )  # fmt: skip


def keep_lost(alias: str, label: str, rows: QuerySet[Model]) -> None:
    """Write a history row for each of these rows, whose leases ran out; call it before they are written."""
    failure = lease_lost()
    named = ("pk", "state", "state_version", "state_attempts", "state_attempted", "state_claim")
    History.objects.using(alias).bulk_create(
        History(
            model_label=label, object_pk=str(pk), kind=History.Kind.ERROR, version=version, source=state,
            worker=worker_of(token), claimed=claimed, attempts=attempts, error=f"{failure.kind}: {failure.message}",
            fingerprint=failure.fingerprint,
        )
        for pk, state, version, attempts, claimed, token in rows.values_list(*named)
    )  # fmt: skip


def report_of(label: str, claim: Claim, outcome: Outcome) -> Report | None:
    """Return the report of an outcome with an error or a reason, else None."""
    if failure := outcome.failure:
        return failure_report(label, claim.pk, claim.state.name, failure, worker_of(claim.token), claim.log)
    if not outcome.reason:
        return None
    return Report(
        model_label=label, object_pk=str(claim.pk), state=claim.state.name,
        message=bounded(str(outcome.reason), REASON_LENGTH), worker=worker_of(claim.token),
    )  # fmt: skip


def error_of(failure: Failure | None) -> tuple[str, str]:
    """Return what the history has of an error: its text and its fingerprint."""
    return (f"{failure.kind}: {failure.message}", failure.fingerprint) if failure else ("", "")


def logged(claims: Iterable[Claim]) -> bool:
    """Return whether the history has what one of these attempts logged."""
    return any(_stored_log(claim) for claim in claims)


def _stored_log(claim: Claim) -> AttemptLog | None:
    return claim.log if claim.log is not None and claim.operations.options.logs else None


def _is_event(outcome: Outcome) -> bool:
    return isinstance(outcome, Moved) or outcome.failure is not None


def _act(label: str, claim: Claim, outcome: Outcome, stay: float | None) -> History:
    moved, log = isinstance(outcome, Moved), _stored_log(claim)
    error, fingerprint = error_of(outcome.failure)
    stayed = History.Kind.ERROR if outcome.failure else History.Kind.WAIT
    return History(
        model_label=label,
        object_pk=str(claim.pk),
        kind=History.Kind.MOVE if moved else stayed,
        version=claim.version + moved,
        source=claim.state.name,
        to=outcome.to.name if isinstance(outcome, Moved) else "",
        worker=worker_of(claim.token),
        claimed=claim.attempted,
        duration=claim.duration,
        stay=stay,
        attempts=claim.attempt,
        error=error,
        fingerprint=fingerprint,
        reason="" if moved or outcome.failure else bounded(text_of(outcome.reason), REASON_LENGTH),
        log=log.text if log else None,
    )
