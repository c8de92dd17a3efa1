"""Reports and history of outcomes and of moves without a handler, written in their transactions."""

from collections.abc import Collection, Hashable
from typing import Any, Self

from django.db.models import F

from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.db.interface import Claim
from stator.db.values import Pk
from stator.extensions.reports.attempt_log import LOG, AttemptLog
from stator.extensions.reports.models import History, Report, failure_report, keep_entries, keep_reports
from stator.graph.failures import Failure, bounded, text_of
from stator.graph.outcomes import Moved, Outcome
from stator.rows import columns
from stator.rows.clock import Seconds
from stator.rows.kept_attempts import attempts_of
from stator.rows.meta import option_of
from stator.rows.records import REASON_LENGTH
from stator.rows.workers import worker_of
from stator.statements import written

# The columns of the attempt, as they are until the outcome is written.
OF_ATTEMPT = ("t.state_attempts AS attempts", "t.state_attempted AS attempted")

DURATIONS = ", %(durations)s::float8[]"

# The worker that made the claim: its id is the beginning of the token.
WORKER = "left(replace(v.claim::text, '-', ''), 12) AS worker"

MOVED = """,
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT %(label)s, pk::text, statement_timestamp(), version, 'move', %(source)s, %(to)s, '', %(reason)s, worker,
    attempted, duration, greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)"""

# The history row of an attempt that failed, after which the object stays.
FAILED = """,
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, attempts, error, fingerprint)
  SELECT %(label)s, pk::text, statement_timestamp(), version, 'error', %(source)s, '', '', '', worker, attempted,
    duration, attempts, %(history_error)s, %(history_fingerprint)s FROM done)"""

REPORTED = """,
reported AS (
  INSERT INTO stator_report AS report (model_label, object_pk, state, at, error, message, traceback, fingerprint,
    times, worker)
  SELECT %(label)s, pk::text, %(source)s, statement_timestamp(), %(error)s, %(message)s, %(traceback)s,
    %(fingerprint)s, 1, %(worker)s FROM done
  ON CONFLICT (model_label, object_pk) DO UPDATE
  SET state = excluded.state, at = excluded.at, error = excluded.error, message = excluded.message,
    traceback = excluded.traceback, fingerprint = excluded.fingerprint, worker = excluded.worker,
    log = NULL, times = CASE WHEN (report.state, report.error, report.message)
      = (excluded.state, excluded.error, excluded.message) THEN report.times + 1 ELSE 1 END)"""


class KeptHistory(Effect):
    """The history of moves and errors, and of attempts that logged something; of models with ``StatorMeta.history``.

    One statement writes moves without an error, which are many, and a single error.
    """

    tells = True

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for models with history."""
        return cls(store) if option_of(store.operations.model, "history") else None

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._logs = option_of(store.operations.model, "logs")
        self._is_elsewhere = attempts_of(store.model) is not None
        self._together = store.inserts and store.compiler.keeps_keys

    def wants(self, act: Act) -> Hashable:
        """Return whether the one statement writes moves, or an error."""
        if self._is_elsewhere and act.claims:
            return None
        with_log = self._logs and not act.released and any(LOG.of(claim) for claim in act.claims)
        if act.moved:
            return "moved" if self._together and not (act.failed or with_log) else AFTER
        if not (act.failed or with_log):
            return None
        return "failed" if self._together and not with_log and len(act.claims) == 1 else AFTER

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the INSERT of the entries."""
        return Part(
            arrays=DURATIONS, names=("duration",),
            passed=OF_ATTEMPT,
            returned=(
                f"{self._compiler.table}.state_version AS version", WORKER, "v.duration", "v.attempts", "v.attempted"
            ),
            after=written(MOVED if answer == "moved" else FAILED),
        )  # fmt: skip

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add what attempts took, and what is said of moves or errors."""
        into["durations"] = [claim.duration for claim in act.claims]
        into["reason"] = act.reason
        if answer == "failed":
            [outcome] = act.outcomes
            into["history_error"], into["history_fingerprint"] = error_of(outcome.failure)

    def leaving(self, act: Act, pks: Collection[Pk]) -> None:
        """Write the entries of a move; the server copies what the rows were."""
        operations = self._operations
        of_row = {"version": F("state_version") + 1, "stay": Seconds(columns.stayed())}
        given = {
            "to": act.edge[1], "reason": act.reason, "worker": operations.worker_id, "kind": History.Kind.MOVE.value
        }  # fmt: skip
        keep_entries(operations.model, operations.alias, list(pks), of_row, given)

    def write(self, done: Done) -> None:
        """Write an entry for each move and error; of models with logs, also for each other attempt with a log."""
        entries = [
            _entry(self._operations.label, claim, outcome, done.accepted[claim.pk], log)
            for claim, outcome in done.act.ended
            if (log := LOG.of(claim) if self._logs else None) or _is_event(outcome)
        ]
        if entries:
            History.objects.using(self._operations.alias).bulk_create(entries)


class KeptReports(Effect):
    """The latest error, or reason to wait, of each object. One statement writes the report of one outcome."""

    def wants(self, act: Act) -> Hashable:
        """Return a key if there is one outcome, without a log."""
        if not (act.failed or [outcome for outcome in act.outcomes if outcome.reason]):
            return None
        together = self._inserts and len(act.claims) == 1 and self._compiler.keeps_keys
        return "reported" if together and LOG.of(act.claims[0]) is None else AFTER

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the INSERT of the report, or its UPDATE."""
        return Part(after=written(REPORTED))

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add what the report says."""
        [(claim, outcome)] = act.ended
        report: Any = report_of(self._operations.label, claim, outcome)
        for name in ("error", "message", "traceback", "fingerprint", "worker"):
            into[name] = getattr(report, name)

    def write(self, done: Done) -> None:
        """Write the reports."""
        label = self._operations.label
        reports = [report for ended in done.act.ended if (report := report_of(label, *ended))]
        keep_reports(self._operations.alias, label, reports)


def report_of(label: str, claim: Claim, outcome: Outcome) -> Report | None:
    """Return the report of an outcome with an error or a reason, else None."""
    if failure := outcome.failure:
        return failure_report(label, claim.pk, claim.state.name, failure, worker_of(claim.token), LOG.of(claim))
    if not outcome.reason:
        return None
    return Report(
        model_label=label, object_pk=str(claim.pk), state=claim.state.name,
        message=bounded(str(outcome.reason), REASON_LENGTH), worker=worker_of(claim.token),
    )  # fmt: skip


def error_of(failure: Failure | None) -> tuple[str, str]:
    """Return what the history has of an error: its text and its fingerprint."""
    return (f"{failure.kind}: {failure.message}", failure.fingerprint) if failure else ("", "")


def _is_event(outcome: Outcome) -> bool:
    return isinstance(outcome, Moved) or outcome.failure is not None


def _entry(label: str, claim: Claim, outcome: Outcome, stay: float | None, log: AttemptLog | None) -> History:
    """Return an unsaved entry; ``stay``: seconds in the state that was left."""
    moved = isinstance(outcome, Moved)
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
