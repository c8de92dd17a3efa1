"""Claims on rows: the proof that an attempt may write, and what its handler sees as ``instance.stator``."""

import os
import time
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async

from stator.db.instances import UNREADABLE, load_rows
from stator.db.preparing import PREPARING, Preparing
from stator.graph import State
from stator.graph.options import is_seconds
from stator.rows import columns

Adopted = TypeVar("Adopted", bound="Claim")

# Where an instance keeps its row's place from the claim statement to its claim.
PLACE = "_stator_place"


class Crashes(Enum):
    """Which ready rows a claim takes, by the number of leases that they lost in a row."""

    NONE = "none"
    # So few that they run beside others, but only a limited number of them in one process.
    FEW = "few"
    # So many that each runs alone.
    MANY = "many"


class Claim:
    """One row that one worker holds for one attempt.

    Times are monotonic seconds of this process. ``deadline``: when the worker must have stopped unless the lease is
    extended; it is counted from before the claim was sent, so it is never later than the lease in the database.
    ``attempted``: the database's time of the claim, as in its column. ``place``: where in its table the claim has put
    the row, if known. ``unreadable``: the error of the project's code when the instance was made; the attempt fails
    with it.
    """

    __slots__ = (
        "age", "attempt", "attempted", "cancelled_for", "claimed", "deadline", "failures", "finished", "instance",
        "lease", "max_runtime", "operations", "pk", "place", "started", "state", "token", "unreadable", "version",
    )  # fmt: skip

    def __init__(self, operations: Any, instance: Any, state: State, token: UUID, claimed: float) -> None:
        row = instance.__dict__
        self.operations = operations
        self.instance = instance
        self.pk = row[operations.pk_name]
        self.place: str | None = row.pop(PLACE, None)
        self.unreadable: Exception | None = row.pop(UNREADABLE, None)
        self.state = state
        self.token = token
        self.version: int = row["state_version"]
        self.attempt: int = row["state_attempts"]
        self.failures: int = row["state_failures"]
        self.attempted = row["state_attempted"]
        self.age: float = (self.attempted - row["state_changed"]).total_seconds()
        self.lease = operations.lease_of(state)
        self.max_runtime = state.max_runtime or operations.settings.MAX_RUNTIME
        self.claimed = claimed
        self.deadline = claimed + 0.8 * self.lease
        self.started = self.finished = 0.0
        self.cancelled_for: str | None = None

    def __repr__(self) -> str:
        return f"<Claim {self.operations.label} {self.pk} in {self.state.name}, attempt {self.attempt}>"

    @property
    def duration(self) -> float | None:
        """Seconds that the attempt took; None if there was none."""
        return self.finished - self.started if self.started and self.finished else None

    @property
    def idempotency_key(self) -> str:
        """Equal for every attempt in this stay in the state, new on re-entry: pass it to external services."""
        return f"{self.operations.label}:{self.pk}:{self.version}:{self.state.name}"

    def preparing(self) -> Preparing:
        """Return a context for preparing the work: if the database fails in it, the attempt did not take place."""
        return PREPARING

    def still_mine(self) -> bool:
        """Return whether the claim stands and its lease has not run out, according to the database."""
        return self.operations.holds(self)

    async def astill_mine(self) -> bool:
        """Run :meth:`still_mine` in a thread, for async code."""
        return await sync_to_async(self.still_mine)()

    def extend(self, seconds: float) -> bool:
        """Hold the row, and let the attempt run, for ``seconds`` from now; return False if the claim has ended."""
        if not is_seconds(seconds):
            raise ValueError(f"extend() takes a number of seconds above 0, not {seconds!r}")
        now = time.monotonic()
        # The heartbeat continues from there. A lease beyond the longest would look as if a clock had been set back.
        if not self.operations.extend(self, min(seconds, self.operations.longest_lease)):
            return False
        self.note_extension(seconds, now)
        return True

    def note_extension(self, seconds: float, now: float) -> None:
        """Note an extended lease: let the attempt run for ``seconds`` from the monotonic time ``now``."""
        self.max_runtime = max(self.max_runtime, now - (self.started or now) + seconds)
        self.deadline = now + 0.8 * min(seconds, self.operations.longest_lease)

    async def aextend(self, seconds: float) -> bool:
        """Run :meth:`extend` in a thread, for async code."""
        return await sync_to_async(self.extend)(seconds)


def claim_one(operations: Any, pk: Any) -> Claim | None:
    """Claim one row out of turn, ending any other claim; return None if it is gone or its state is not attempted."""
    token, claimed = new_token(operations.worker_id), time.monotonic()
    attempted = [state.name for state in operations.graph.automatic_states]
    rows = operations.rows.filter(pk=pk, state__in=attempted)
    with operations.transaction():
        if not rows.update(**columns.claiming(token, columns.after(operations.settings.LEASE))):
            return None
        [instance] = load_rows(rows)
    return Claim(operations, instance, operations.graph.states[instance.state], token, claimed)


def adopt(kind: type[Adopted], operations: Any, token: UUID) -> Adopted | None:
    """Return the claim that another process made with this token, or None if it has ended."""
    held, claimed = operations.rows.filter(state_claim__isnull=False, state_claim=token), time.monotonic()
    for instance in load_rows(held[:1]):
        return kind(operations, instance, operations.graph.states[instance.state], token, claimed)
    return None


def new_worker_id() -> str:
    """Return twelve random hexadecimal digits that name a worker process."""
    return os.urandom(6).hex()


def new_token(worker_id: str) -> UUID:
    """Return a new token: a UUID of version 8 (RFC 9562) that starts with the id of its worker."""
    random = int.from_bytes(os.urandom(10), "big")
    return UUID(int=(int(worker_id, 16) << 80) | (random & ~(0xF << 76) & ~(0x3 << 62)) | (0x8 << 76) | (0x2 << 62))
