"""The database interface of a model: what it is given, what it returns, and its parts.

``Operations`` are composed of four parts, each behind a protocol; a vendor replaces those that it can improve. What
all databases have in common is in ``Rows``.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models import Model, QuerySet

from stator.conf import Settings
from stator.db.instances import UNREADABLE
from stator.db.preparing import PREPARING, Preparing
from stator.db.repeat import retried
from stator.db.rows import Crashes, Rows
from stator.db.values import Params, Pk, Row
from stator.graph import State
from stator.graph.failures import Failure
from stator.graph.options import is_seconds
from stator.graph.outcomes import Moved, Outcome, Released
from stator.rows import columns
from stator.rows.pauses import Pause, read_pauses
from stator.signals import Move
from stator.statements import Statement

# MariaDB refuses a UUID of version 6 to 8 if all bits after its variant, in the ninth byte, are zero.
NOT_ZERO = 1 << 56
# Where an instance keeps its row's place from the claim statement to its claim.
PLACE = "_stator_place"
NO_NOTES: Mapping[str, object] = {}


class Claim:
    """One row that one worker holds for one attempt.

    Times are monotonic seconds of this process. ``deadline``: when the worker must have stopped unless the lease is
    extended; it is counted from before the claim was sent, so it is never later than the lease in the database.
    ``attempted``: the database's time of the claim. ``place``: where in its table the claim has put the row, if known.
    ``unreadable``: the error of the project's code when the instance was made, with which the attempt fails.
    ``heartbeat``: seconds after which the lease is renewed. ``started``: when the project's code was called, 0 before.
    ``taken_back``: a renewal was refused within the lease. ``notes``: values of the program for its record of this
    attempt; if there are any, the model's option ``recorded`` writes it.
    """

    __slots__ = (
        "age", "attempt", "attempted", "cancelled_for", "claimed", "deadline", "failures", "finished", "heartbeat",
        "instance", "lease", "max_runtime", "notes", "operations", "pk", "place", "started", "state", "taken_back",
        "token", "unreadable", "version",
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
        if operations.options.lease_end:
            self.lease = (row["state_locked_until"] - self.attempted).total_seconds()
            self.renew_after(row.get(operations.options.heartbeat or ""))
        self.max_runtime = state.max_runtime or operations.settings.MAX_RUNTIME
        self.claimed = claimed
        self.deadline = claimed + 0.8 * self.lease
        self.started = self.finished = 0.0
        self.cancelled_for: str | None = None
        self.taken_back = False
        self.notes: Mapping[str, object] = NO_NOTES

    def __repr__(self) -> str:
        return f"<Claim {self.operations.label} {self.pk} in {self.state.name}, attempt {self.attempt}>"

    def free(self) -> None:
        """Forget the instance, which refers to the claim; else only the garbage collector would free them."""
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
    def idempotency_key(self) -> str:
        """Equal for every attempt in this stay in the state, new on re-entry: pass it to external services."""
        return f"{self.operations.label}:{self.pk}:{self.version}:{self.state.name}"

    @property
    def may_begin(self) -> bool:
        """Whether the project's code may be called: the lease is not nearly over, and the worker is not stopping.

        Others may have the row before a late call would end.
        """
        return time.monotonic() <= self.deadline and not self.operations.stopping

    def unfinished(self, reason: str) -> Released:
        """Return the outcome if nobody waits for the attempt any more: it counts if it has begun."""
        return Released(reason=reason, begun=True) if self.started else Released()

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

    def renew_after(self, seconds: float | None = None) -> None:
        """Have the lease renewed after its row's own ``seconds``, if that is sooner than a third of it."""
        self.heartbeat = min(self.lease / 3, seconds or self.lease)

    def note_extension(self, seconds: float, now: float) -> None:
        """Note an extended lease: let the attempt run for ``seconds`` from the monotonic time ``now``."""
        self.max_runtime = max(self.max_runtime, now - (self.started or now) + seconds)
        self.deadline = now + 0.8 * min(seconds, self.operations.longest_lease)

    async def aextend(self, seconds: float) -> bool:
        """Run :meth:`extend` in a thread, for async code."""
        return await sync_to_async(self.extend)(seconds)


def new_worker_id() -> str:
    """Return twelve random hexadecimal digits that name a worker process."""
    return os.urandom(6).hex()


def new_token(worker_id: str) -> UUID:
    """Return a new token: a UUID of version 8 (RFC 9562) that starts with the id of its worker."""
    random = int.from_bytes(os.urandom(10), "big") & ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=(int(worker_id, 16) << 80) | random | (0x8 << 76) | (0x2 << 62) | NOT_ZERO)


Ended = tuple[Claim, Outcome]

# The targets of outcomes without a result: of an attempt that has not begun, and of one that has. No state can have
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

    ``operations`` made the claims. ``outcome``: the first outcome; the others have its type, and its state if they are
    moves. ``source``: the state that they leave. ``to``: the name of the state that they enter, "" if the rows stay, or
    ``RELEASED`` or ``INTERRUPTED``. ``moved``: the rows enter another state. ``released``: the attempts have no result.
    ``begun``: the attempts have begun, and count. ``failed``: some have an error. ``reported``: some have an error or a
    reason. ``saves``: the fields for which some have values. ``computed``: some of these are expressions for the
    database.
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


class Transactions(Protocol):
    """Transactions, statements in them, and locks on rows until their end."""

    @property
    def longest_wait(self) -> float:
        """Seconds for which a worker's statement may wait for a lock of others."""

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a short transaction for our own writes; ``wait``: seconds that it waits for a lock, if fewer."""

    def reading(self) -> AbstractContextManager[object]:
        """Return a context for a query with the lock timeout of :meth:`transaction`; no transaction without one."""

    def handler_transaction(self) -> AbstractContextManager[object]:
        """Return the transaction of a handler whose state is ``atomic``; the handler has no lock timeout."""

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""

    def fetch(
        self, statement: str, params: Params, planner: str = ..., *, often: bool = False, last: bool = False
    ) -> list[Row]:
        """Return the rows of one statement.

        ``planner``: settings that are sent ahead of it. ``often``: it is sent again and again. ``last``: it commits the
        handler's transaction. They are for PostgreSQL.
        """

    def lock(
        self,
        rows: QuerySet[Model],
        limit: int,
        *,
        in_order: bool = False,
        among: QuerySet[Model] | None = None,
    ) -> list[Pk]:
        """Lock up to ``limit`` rows, skipping those locked by others; return their primary keys.

        ``in_order``: the rows are many, and an index has them in the wanted order. ``among``: rows that an index has in
        that order; ``sought`` filters them, and may match few or many.
        """

    def keep(self, rows: QuerySet[Model]) -> set[Pk]:
        """Lock rows of any model until the transaction ends; return the keys of rows that nobody else is changing."""

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock rows until the end of the transaction; return the claims that stand."""


class Leases(Protocol):
    """The ends of claims: put off, found, or enforced."""

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim stands and its lease has not run out."""

    def extend(self, claim: Claim, seconds: float) -> bool:
        """Set the lease of one claim to end ``seconds`` from now; return False if the claim has ended."""

    def renew(self, claims: list[Claim], *, wait: float | None = None) -> set[int]:
        """Extend the leases of claims that stand; return the ``id()`` of claims that have ended.

        ``wait``: seconds that it waits for a lock, if fewer than usual.
        """

    def reap(self, limit: int) -> list[tuple[Pk, str]]:
        """End the leases that ran out, counting a crash for each; return ``(pk, worker id)`` of the rows."""


class Claims(Protocol):
    """The statements that claim ready rows, and that undo a claim."""

    def claim(
        self, states: list[State], limit: int, *, token: UUID | None = None, crashes: Crashes = Crashes.NONE
    ) -> list[Claim]:
        """Claim up to ``limit`` ready rows in the order of their turn; rows that lost leases by age alone.

        A state with limited ``concurrency`` is claimed by itself. Paused rows are not claimed.
        """

    def release_token(self, token: UUID) -> int:
        """Release the rows of a claim statement whose answer never arrived; return how many."""


class Records(Protocol):
    """The statements that write what came of attempts, and that move rows without one."""

    def record(self, ended: list[Ended], *, again: bool = False, last: bool = False) -> Written:
        """Record outcomes whose claims stand, with reports and statistics, in one transaction for each kind.

        ``again``: an earlier try got no answer, so outcomes that are found written count as accepted. ``last``: it may
        commit the handler's transaction.
        """

    def record_batch(self, batch: Batch, *, again: bool = False, last: bool = False) -> Written:
        """Call :meth:`record` for outcomes of one kind: in one transaction or not at all."""

    def record_noted(
        self, batch: Batch, noted: Statement, values: Mapping[str, object], only: Statement | None = None
    ) -> Written | None:
        """Record outcomes and change the program's records of the claims, by ``done``, in one statement.

        Only while the leases last, and under the condition ``only``. None, and nothing is written, if that is not so
        or takes more statements.
        """

    def move_rows(
        self,
        rows: QuerySet[Model],
        source: str,
        to: State,
        limit: int,
        *,
        reason: str = "",
        changes: columns.Changes | None = None,
    ) -> Moves:
        """Move up to ``limit`` unclaimed rows without a handler, with history and statistics, in one transaction.

        ``changes``: the columns that change, unless the rows enter ``to`` as by any other move.
        """


class Parts(NamedTuple):
    """The parts of the operations on one model."""

    transactions: Transactions
    leases: Leases
    claims: Claims
    records: Records


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
        # Bound once, so that a call costs one lookup; protocols say what each of them does.
        self.transaction = transactions.transaction
        self.reading = transactions.reading
        self.handler_transaction = transactions.handler_transaction
        self.hurry = transactions.hurry
        self.fetch = transactions.fetch
        self.lock = transactions.lock
        self.keep = transactions.keep
        self.lock_claimed = transactions.lock_claimed
        self.holds = leases.holds
        self.extend = retried(self, leases.extend)
        self.renew = retried(self, leases.renew)
        self.reap = leases.reap
        self.claim = retried(self, claims.claim)
        self.release_token = retried(self, claims.release_token)
        self.record = records.record
        self.record_noted = records.record_noted
        self.record_batch = retried(self, records.record_batch)
        self.move_rows = retried(self, records.move_rows)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the state: a handler may pickle its instance, and with it the claim and these operations."""
        given = self.model, self.alias, self.settings, self.worker_id, self._parts_of, self.schema
        return type(self), given

    @property
    def longest_wait(self) -> float:
        """Seconds for which a worker's statement may wait for a lock of others."""
        return self.transactions.longest_wait

    def read_pauses(self) -> list[Pause]:
        """Return the active pauses in this database, for all models."""
        with self.reading():
            return read_pauses(self.alias)
