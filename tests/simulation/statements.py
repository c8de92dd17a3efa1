"""The statements of a worker, one value for each, and the claims that it holds."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stator.rows.claimable import Crashes

LEASE = 10.0
MAX_CRASHES = 3

# The states of the simulated graph and the delays of its handlers: those of ``tests.testapp.faults.JobGraph``.
STATES = ("fresh", "halfway", "done")
NEXT = {"fresh": "halfway", "halfway": "done"}
INTERVAL = 0.2


class Lost(Exception):
    """The connection broke: nobody can tell whether the statement was executed."""


@dataclass(frozen=True, slots=True)
class Held:
    """One row held by one worker. ``deadline``: monotonic time past which the worker starts nothing on it."""

    pk: int
    token: UUID
    state: str
    version: int
    attempt: int
    deadline: float
    claim: Any = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt: ``to`` another state, or ``to=None`` to stay; ``released`` was no attempt."""

    to: str | None = None
    failed: bool = False
    released: bool = False


RELEASED = Outcome(released=True)


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim up to ``limit`` ready rows that lost so many leases. The reply is a list of :class:`Held`."""

    token: UUID
    limit: int
    crashes: Crashes = Crashes.NONE


@dataclass(frozen=True, slots=True)
class Start:
    """Start the handler, which leaves an effect outside of the protocol. The reply is None."""

    held: Held


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend the lease of a claim. The reply says whether the claim stands."""

    held: Held


@dataclass(frozen=True, slots=True)
class Record:
    """Write an outcome. ``again``: it was sent before without a reply. The reply says whether it is written."""

    held: Held
    outcome: Outcome
    again: bool = False


@dataclass(frozen=True, slots=True)
class HandBack:
    """Release what a claim statement took whose reply was lost. The reply is None."""

    token: UUID


@dataclass(frozen=True, slots=True)
class Reap:
    """End the leases that ran out. The reply is None."""


@dataclass(frozen=True, slots=True)
class MarkReady:
    """Mark rows ready whose due time has passed. The reply is None."""
