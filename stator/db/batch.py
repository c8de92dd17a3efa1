"""Batches of outcomes: how they are grouped for writing, what is written with them, and the result of a write.

Reports and history are written in the same transaction as the outcomes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet, Value

from stator.db.claim import Claim
from stator.graph import State
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Outcomes of one kind, at most one for each row. It is made once, and each step of the recording gets it.

    ``source``: the state that they leave. ``to``: the name of the state that they enter, "" if the rows stay, or
    ``RELEASED``. ``failed``: some have an error. ``reported``: some have an error or a reason. ``saves``: the fields
    for which some have values. ``computed``: some of these values are expressions for the database.
    """

    ended: list[Ended]
    claims: list[Claim]
    source: State
    to: str
    failed: bool
    reported: bool
    saves: tuple[str, ...]
    computed: bool

    @classmethod
    def of(cls, ended: list[Ended]) -> "Batch":
        """Return outcomes of one kind as a batch."""
        # Most claims share one outcome, and most states save nothing.
        outcomes = {id(outcome): outcome for _, outcome in ended}.values()
        failed = any(outcome.failure is not None for outcome in outcomes)
        source = ended[0][0].state
        values = [outcome.values for outcome in outcomes if outcome.values] if source.saves else []
        return cls(
            ended,
            [claim for claim, _ in ended],
            source,
            kind_of(ended[0])[1],
            failed,
            failed or any(outcome.reason for outcome in outcomes),
            source.saves if values else (),
            any(hasattr(value, "resolve_expression") for each in values for value in each.values()),
        )

    @property
    def operations(self) -> Any:
        """The operations that made the claims."""
        return self.claims[0].operations

    @property
    def outcome(self) -> Outcome:
        """The first outcome; the others have its type, and its state if they are moves."""
        return self.ended[0][1]

    @property
    def released(self) -> bool:
        """Whether the attempts did not take place, and so are not counted."""
        return self.to == RELEASED

    @property
    def moved(self) -> bool:
        """Whether the rows enter another state."""
        return bool(self.to) and not self.released

    def only(self, pks: Collection[Any]) -> "Batch":
        """Return the outcomes of some of its rows; what was true of some outcomes is not determined anew."""
        if len(pks) == len(self.ended):
            return self
        ended = [each for each in self.ended if each[0].pk in pks]
        return replace(self, ended=ended, claims=[claim for claim, _ in ended])

    def accepted(self) -> Written:
        """Return the result of writing it if all outcomes were accepted."""
        written = Written()
        if self.moved:
            source, to = self.source.name, self.to
            written.moves = [Move(claim.pk, source, to) for claim in self.claims]
        if self.failed:
            written.failures = [(claim.pk, outcome.failure) for claim, outcome in self.ended if outcome.failure]
        return written


def batches_of(ended: list[Ended], most: int | None = None) -> list[Batch]:
    """Return outcomes of one model in batches of at most so many; the latest outcome of a row comes first."""
    kinds: dict[tuple[str, str], list[Ended]] = defaultdict(list)
    for each in ended:
        kinds[kind_of(each)].append(each)
    parts = [part for kind in sorted(kinds) for part in _one_per_row(kinds[kind])]
    most = most or len(ended)
    return [Batch.of(part[start : start + most]) for part in parts for start in range(0, len(part), most)]


def _one_per_row(group: list[Ended]) -> Iterator[list[Ended]]:
    # A row occurs twice if its lease was lost and the same worker has claimed it again meanwhile.
    while group:
        latest = {ended[0].pk: ended for ended in group}
        yield list(latest.values())
        if len(latest) == len(group):
            return
        group = [ended for ended in group if latest[ended[0].pk] is not ended]


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


def keep(alias: str, label: str, kept: Batch) -> None:
    """Write the latest error, or reason to wait, of each object."""
    if kept.reported:
        keep_reports(alias, label, [report for ended in kept.ended if (report := report_of(label, *ended))])


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
