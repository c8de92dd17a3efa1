"""Batches of outcomes: how they are grouped for writing, and the result of a write. Values and pure functions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import F, Value

from stator.db.claim import Claim
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
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
