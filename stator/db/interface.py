"""The database interface of a model: its arguments, its results, and its parts.

``Operations`` are composed of four parts. Each part is a class that is correct on every database; a vendor overrides
the parts that it can improve. ``Rows`` has what all databases have in common.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db.models import Model

from stator.conf import Settings
from stator.db.instances import UNREADABLE
from stator.db.preparing import PREPARING, Preparing
from stator.db.repeat import retried
from stator.db.rows import Place, Rows
from stator.db.values import Pk
from stator.graph import State
from stator.graph.failures import Failure
from stator.graph.options import is_seconds
from stator.graph.outcomes import Moved, Outcome, Released
from stator.querysets import HeldClaim
from stator.rows.pauses import Pause, read_pauses
from stator.rows.reports import Event
from stator.signals import Move

if TYPE_CHECKING:
    # A claim refers to its operations, whose parts make and end claims; at run time the parts are given.
    from stator.db.claims import Claims
    from stator.db.leases import Leases
    from stator.db.records import Records
    from stator.db.transactions import Transactions

# MariaDB refuses a UUID of version 6 to 8 if all bits after its variant, in the ninth byte, are zero.
NOT_ZERO = 1 << 56
# The attribute of an instance that carries its row's place from the claim statement to its claim.
PLACE = "_stator_place"
NO_NOTES: Mapping[str, object] = {}


class Claim(HeldClaim):
    """One row that one worker holds for one attempt.

    Times are monotonic seconds of this process.

    ``deadline``: when the worker must have stopped unless the lease is extended; it is counted from before the claim
    was sent, so it is never later than the lease in the database.
    ``attempted``: the database's time of the claim.
    ``place``: where in its table the claim has put the row, if known.
    ``unreadable``: the error of the project's code when the instance was made; the attempt fails with it.
    ``heartbeat``: seconds after which the lease is renewed.
    ``started``: when the project's code was called, 0 before.
    ``returned``: when the project's code returned in its thread, 0 if that is not known.
    ``taken_back``: a renewal was refused within the lease.
    ``notes``: values of the program for its record of this attempt; if there are any, the model's hook ``recorded``
    writes the record.
    """

    __slots__ = (
        "age", "attempt", "attempted", "cancelled_for", "claimed", "deadline", "event", "failures", "finished",
        "heartbeat",
        "instance", "lease", "max_runtime", "notes", "operations", "pk", "place", "returned", "started", "state",
        "taken_back", "token", "unreadable", "version",
    )  # fmt: skip

    def __init__(self, operations: "Operations", instance: Any, state: State, token: UUID, claimed: float) -> None:
        row = instance.__dict__
        self.operations = operations
        self.instance = instance
        self.pk: Pk = row[operations.pk_name]
        self.place: str | None = row.pop(PLACE, None)
        self.unreadable: BaseException | None = row.pop(UNREADABLE, None)
        self.state = state
        self.token = token
        self.version: int = row["state_version"]
        self.attempt: int = row["state_attempts"]
        self.failures: int = row["state_failures"]
        self.attempted: datetime = row["state_attempted"]
        self.age: float = (self.attempted - row["state_changed"]).total_seconds()
        self.lease: float = state.lease or operations.settings.LEASE
        self.heartbeat = self.lease / 3
        if operations.hooks.lease_end:
            self.lease = (row["state_locked_until"] - self.attempted).total_seconds()
            self.renew_after(row.get(operations.options.heartbeat or ""))
        self.max_runtime = state.max_runtime or operations.settings.MAX_RUNTIME
        self.claimed = claimed
        self.deadline = claimed + 0.8 * self.lease
        self.started = self.returned = self.finished = 0.0
        self.cancelled_for: str | None = None
        self.taken_back = False
        self.notes: Mapping[str, object] = NO_NOTES
        self.event: Event | None = None

    def __repr__(self) -> str:
        return f"<Claim {self.operations.label} {self.pk} in {self.state.name}, attempt {self.attempt}>"

    def free(self) -> None:
        """Forget the instance, which refers to the claim; otherwise only the garbage collector would free both."""
        self.instance = None

    @property
    def ended_in_time(self) -> bool:
        """Whether a claim that has ended did so within its lease: somebody moved, unlocked or deleted the row."""
        return self.taken_back or time.monotonic() < self.deadline + 0.2 * self.lease

    @property
    def duration(self) -> float | None:
        """Seconds that the attempt took; None if there was none."""
        return self.finished - self.started if self.started and self.finished else None

    @property
    def may_begin(self) -> bool:
        """Whether the project's code may be called: the lease is not nearly over, and the worker is not stopping.

        Another worker may have the row before a late call would end.
        """
        return time.monotonic() <= self.deadline and not self.operations.stopping

    def unfinished(self, reason: str) -> Released:
        """Return the outcome if nobody waits for the attempt any more: it counts if it has begun."""
        return Released(reason=reason, begun=True) if self.started else Released()

    def preparing(self) -> Preparing:
        return PREPARING

    def still_mine(self) -> bool:
        return self.operations.holds(self)

    def extend(self, seconds: float) -> bool:
        if not is_seconds(seconds):
            raise ValueError(f"extend() takes a number of seconds above 0, not {seconds!r}")
        now = time.monotonic()
        # The heartbeat continues from there. A lease beyond the longest would look as if a clock had been set back.
        if not self.operations.extend(self, min(seconds, self.operations.longest_lease)):
            return False
        self.note_extension(seconds, now)
        return True

    def renew_after(self, seconds: float | None = None) -> None:
        """Have the lease renewed after its row's own ``seconds``, if that is sooner than a third of it."""
        self.heartbeat = min(self.lease / 3, seconds or self.lease)

    def note_extension(self, seconds: float, now: float) -> None:
        """Note an extended lease: let the attempt run for ``seconds`` from the monotonic time ``now``."""
        self.max_runtime = max(self.max_runtime, now - (self.started or now) + seconds)
        self.deadline = now + 0.8 * min(seconds, self.operations.longest_lease)


def new_worker_id() -> str:
    """Return twelve random hexadecimal digits that name a worker process."""
    return os.urandom(6).hex()


def new_token(worker_id: str) -> UUID:
    """Return a new token: a UUID of version 8 (RFC 9562) that starts with the id of its worker."""
    random = int.from_bytes(os.urandom(10), "big") & ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=(int(worker_id, 16) << 80) | random | (0x8 << 76) | (0x2 << 62) | NOT_ZERO)


Ended = tuple[Claim, Outcome]

# The targets of outcomes without a result, for attempts that have not begun and for begun attempts. No state can have
# these names.
RELEASED, INTERRUPTED = "<released>", "<interrupted>"


@dataclass(slots=True)
class Written:
    """The result of writing outcomes: accepted ones, claims that had ended, and outcomes to write again later."""

    moves: list[Move] = field(default_factory=list)
    failures: list[tuple[Pk, Failure]] = field(default_factory=list)
    lost: list[Claim] = field(default_factory=list)
    deferred: list[Ended] = field(default_factory=list)
    # The database's time, if the statement that wrote them returned it.
    at: datetime | None = None

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

    ``operations`` made the claims.
    ``outcome``: the first outcome; all outcomes have its type and, if they are moves, its state.
    ``source``: the state that the rows leave.
    ``to``: the name of the state that they enter, "" if they stay, or ``RELEASED`` or ``INTERRUPTED``.
    ``moved``: the rows enter another state.
    ``released``: the attempts have no result.
    ``begun``: the attempts have begun, and count.
    ``failed``: some have an error.
    ``reported``: some have an error or a reason.
    ``saves``: the fields that get values in some outcomes.
    ``computed``: some of these values are expressions for the database.
    """

    ended: list[Ended]
    claims: list[Claim]
    operations: "Operations"
    outcome: Outcome
    source: State
    to: str
    moved: bool
    released: bool
    begun: bool
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
        first, outcome = ended[0]
        source, to = first.state, kind_of(ended[0])[1]
        values = [outcome.values for outcome in outcomes if outcome.values] if source.saves else []
        return cls(
            ended,
            [claim for claim, _ in ended],
            first.operations,
            outcome,
            source,
            to,
            bool(to) and to not in (RELEASED, INTERRUPTED),
            to in (RELEASED, INTERRUPTED),
            to != RELEASED,
            failed,
            failed or any(outcome.reason for outcome in outcomes),
            source.saves if values else (),
            any(hasattr(value, "resolve_expression") for each in values for value in each.values()),
        )

    def only(self, pks: Collection[Pk]) -> "Batch":
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


def kind_of(ended: Ended) -> tuple[str, str]:
    """Return the state that an outcome leaves and the one it enters; outcomes with equal pairs are written together."""
    claim, outcome = ended
    if isinstance(outcome, Moved):
        return claim.state.name, outcome.to.name
    if isinstance(outcome, Released):
        return claim.state.name, INTERRUPTED if outcome.begun else RELEASED
    return claim.state.name, ""


def batches_of(ended: list[Ended], most: int | None = None) -> list[Batch]:
    """Return outcomes of one model in batches of limited size; the latest outcome of a row comes first."""
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


class Parts(NamedTuple):
    """The parts of the operations on one model."""

    transactions: "Transactions"
    leases: "Leases"
    claims: "Claims"
    records: "Records"


class Operations(Rows):
    """The database interface of one model: its rows, and the methods of its parts.

    Statements that lost to another transaction are repeated, except inside an open transaction.
    """

    def __init__(
        self,
        model: type[Model],
        alias: str,
        settings: Settings,
        worker_id: str,
        parts_of: "Callable[[Operations], Parts]",
        schema: str = "",
    ) -> None:
        super().__init__(model, alias, settings, worker_id, schema)
        self._parts_of = parts_of
        # Whether its worker was asked to stop, and begins nothing more.
        self.stopping = False
        self.transactions, self.leases, self.claims, self.records = parts_of(self)
        transactions, leases, claims, records = self.transactions, self.leases, self.claims, self.records
        # The methods are bound once, so that a call costs one lookup.
        self.transaction = transactions.transaction
        self.reading = transactions.reading
        self.handler_transaction = transactions.handler_transaction
        self.hurry = transactions.hurry
        self.fetch = transactions.fetch
        self.lock = transactions.lock
        self.lock_among = transactions.lock_among
        self.keep = transactions.keep
        self.lock_claimed = transactions.lock_claimed
        self.holds = leases.holds
        self.extend = retried(self, leases.extend)
        self.renew = retried(self, leases.renew)
        self.reap = leases.reap
        self.claim = retried(self, claims.claim)
        self.release_token = retried(self, claims.release_token)
        self.record = records.record
        self.record_batch = retried(self, records.record_batch)
        self.move_rows = retried(self, records.move_rows)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the state: a handler may pickle its instance, and with it the claim and these operations."""
        given = self.model, self.alias, self.settings, self.worker_id, self._parts_of, self.schema
        return type(self), given

    @property
    def longest_wait(self) -> float:
        """Seconds that a worker's statement may wait for another transaction's lock."""
        return self.transactions.longest_wait

    def read_pauses(self) -> list[Pause]:
        """Return the active pauses in this database, for all models."""
        with self.reading():
            return read_pauses(self.alias)


def by_place(operations: Iterable[Operations]) -> dict[Place, list[Operations]]:
    """Return the operations in each place."""
    found: dict[Place, list[Operations]] = defaultdict(list)
    for each in operations:
        found[each.place].append(each)
    return found
