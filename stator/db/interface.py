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
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from uuid import UUID

from django.db.models import Model, Q

from stator.conf import Settings
from stator.db.instances import UNREADABLE
from stator.db.preparing import PREPARING, Preparing
from stator.db.repeat import retried
from stator.db.rows import Rows
from stator.db.values import Instance, Pk, Row
from stator.extensions.events.claims import GotEvents
from stator.extensions.steps.attempt import RecordsSteps
from stator.graph import State
from stator.graph.failures import Failure
from stator.graph.kept import Kept
from stator.graph.options import is_seconds
from stator.graph.outcomes import Moved, Outcome, Released
from stator.querysets import HeldClaim
from stator.rows.life import LIFE, VISIT, Life, is_of_failure
from stator.rows.news import take_news, write_news
from stator.rows.rollbacks import on_rollback
from stator.scopes import Scope
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


class Claim(
    GotEvents,  # stator.extensions.events
    RecordsSteps,  # stator.extensions.steps
    HeldClaim,
):
    """One row that one worker holds for one attempt.

    Times are monotonic seconds of this process.

    ``deadline``: when the worker must have stopped unless the lease is extended; it is counted from before the claim
    was sent, so it is never later than the lease in the database.
    ``attempted``: the database's time of the claim.
    ``place``: where in its table the claim has put the row, if known.
    ``started``: when the project's code was called, 0 before. ``finished``: when it returned.
    ``kept``: what few claims have, by name (:class:`~stator.graph.kept.Kept`).
    """

    __slots__ = (
        "_of_life", "age", "attempt", "attempted", "claimed", "deadline", "failures", "finished", "instance", "kept",
        "lease", "max_runtime", "operations", "pk", "place", "started", "state", "token",
    )  # fmt: skip

    # Why the attempt was cancelled: "max_runtime", "lease" or "shutdown".
    cancelled_for = Kept[str | None]("cancelled_for", None)
    # The error of the project's code when the instance was made; the attempt fails with it.
    unreadable = Kept[BaseException | None]("unreadable", None)
    # The row's own seconds after which its lease is renewed, None for a third of the lease.
    renewed_after = Kept[float | None]("renewed_after", None)
    # How the handler itself has ended the claim, as a phrase.
    own_end = Kept("own_end", "")
    # A renewal was refused within the lease; the row was not there when the claim had ended.
    taken_back, gone = Kept("taken_back", False), Kept("gone", False)
    # Values of the app for what it keeps of this attempt.
    notes = Kept[Mapping[str, object]]("notes", NO_NOTES)

    def __init__(self, operations: "Operations", instance: Instance, state: State, token: UUID, claimed: float) -> None:
        row = instance.__dict__
        self.operations = operations
        self.instance = instance
        self.pk = instance.pk if operations.pk_name == "pk" else row[operations.pk_name]
        self.place: str | None = row.pop(PLACE, None)
        self.kept: dict[str, object] = {}
        if UNREADABLE in row:
            self.unreadable = row.pop(UNREADABLE)
        self.state = state
        self.token = token
        self._of_life: tuple[int, int | None, int | None] = row["state_version"], row[LIFE], row[VISIT]
        self.attempt: int = row["state_attempts"]
        self.failures: int = row["state_failures"]
        self.attempted: datetime = row["state_attempted"]
        self.age: float = (self.attempted - row["state_changed"]).total_seconds()
        self.lease: float = state.lease or operations.settings.LEASE
        if operations.own_lease_end:
            self.lease = (row["state_locked_until"] - self.attempted).total_seconds()
            if own := row.get(operations.options.heartbeat or ""):
                self.renewed_after = own
        self.max_runtime = state.max_runtime or operations.settings.MAX_RUNTIME
        self.claimed = claimed
        self.deadline = claimed + 0.8 * self.lease
        self.started = self.finished = 0.0

    def __repr__(self) -> str:
        return f"<Claim {self.operations.label} {self.pk} in {self.state.name}, attempt {self.attempt}>"

    @property
    def version(self) -> int:
        return self._of_life[0]

    @property
    def life(self) -> Life:
        """The life, visit and wish of the attempt: whatever changes one of them ends the claim."""
        return Life.of(*self._of_life)

    @property
    def heartbeat(self) -> float:
        """Seconds after which the lease is renewed."""
        third, own = self.lease / 3, self.renewed_after if self.kept else None
        return min(third, own) if own else third

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
        return time.monotonic() <= self.deadline and not self.operations.stopping.begun

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
        # Otherwise the attempt would go on after the lease that the row then has.
        on_rollback(self.operations.alias, partial(self._set_end, self.max_runtime, self.deadline))
        self.note_extension(seconds, now)
        self.show_news()
        return True

    def show_news(self) -> None:
        """Write what the attempt has said of itself since the last time."""
        if self.kept:
            write_news(self.operations, [self])

    def take_news(self, name: str, *values: object) -> None:
        """Remember what the attempt has said of itself in another process."""
        take_news(self, name, *values)

    def begin_again(self) -> None:
        """Tell what is kept with the claim that the project's code is called once more within the attempt."""
        # Other threads of the attempt may keep something meanwhile.
        for value in list(self.kept.values()):
            if hasattr(value, "begin_again"):
                value.begin_again()

    def _set_end(self, max_runtime: float, deadline: float) -> None:
        self.max_runtime, self.deadline = max_runtime, deadline

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


class AtOnce(NamedTuple):
    """A condition of the row of a single claim; None for no condition."""

    where: Q | None


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
class OutcomeBatch:
    """Outcomes of one kind, at most one for each row. It is made once, and each step of the recording gets it.

    ``operations`` made the claims.
    ``outcome``: the first outcome; all outcomes have its type and, if they are moves, its state.
    ``source``: the state that the rows leave.
    ``to``: the name of the state that they enter, "" if they stay, or ``RELEASED`` or ``INTERRUPTED``.
    ``edge``: the names of both.
    ``moved``: the rows enter another state.
    ``released``: the attempts have no result.
    ``begun``: the attempts have begun, and count.
    ``failed``: some have an error.
    ``outcomes``: each of the outcomes once.
    ``saves``: the fields that get values in some outcomes.
    ``computed``: some of these values are expressions for the database.
    ``quiet``: the claims have kept nothing, the outcomes have no data, and nobody says anything of them.
    ``note``: what a program says of these ends. ``at_once``: its condition for them, if one statement is to write all.
    """

    ended: list[Ended]
    claims: list[Claim]
    operations: "Operations"
    outcome: Outcome
    source: State
    to: str
    edge: tuple[str, str]
    moved: bool
    released: bool
    begun: bool
    failed: bool
    outcomes: list[Outcome]
    saves: tuple[str, ...]
    computed: bool
    quiet: bool
    note: Any = None
    at_once: AtOnce | None = None
    # Handlers give no reasons for moves.
    reason: ClassVar[str] = ""

    @classmethod
    def of(cls, ended: list[Ended], note: object = None, at_once: AtOnce | None = None) -> "OutcomeBatch":
        """Return outcomes of one kind as a batch."""
        # Most claims share one outcome, and most states save nothing.
        outcomes = list({id(outcome): outcome for _, outcome in ended}.values())
        failed = bool([outcome for outcome in outcomes if outcome.failure is not None])
        first, outcome = ended[0]
        source, edge = first.state, kind_of(ended[0])
        to = edge[1]
        values = [outcome.values for outcome in outcomes if outcome.values] if source.saves else []
        claims = [claim for claim, _ in ended]
        says_more = failed or values or note or at_once or [outcome for outcome in outcomes if outcome.reason]
        return cls(
            ended,
            claims,
            first.operations,
            outcome,
            source,
            to,
            edge,
            bool(to) and to not in (RELEASED, INTERRUPTED),
            to in (RELEASED, INTERRUPTED),
            to != RELEASED,
            failed,
            outcomes,
            tuple(source.saves) if values else (),
            bool([each for each in values for value in each.values() if hasattr(value, "resolve_expression")]),
            not (says_more or any(map(_kept, claims))),
            note,
            at_once,
        )

    @property
    def may_go_on(self) -> bool:
        """Whether the visits that the rows leave may be continued later, or this move continues others."""
        return isinstance(self.outcome, Moved) and is_of_failure(self.source, self.outcome.to)

    def only(self, pks: Collection[Pk]) -> "OutcomeBatch":
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


_kept = attrgetter("kept")


def kind_of(ended: Ended) -> tuple[str, str]:
    """Return the state that an outcome leaves and the one it enters; outcomes with equal pairs are written together."""
    claim, outcome = ended
    if isinstance(outcome, Moved):
        return claim.state.name, outcome.to.name
    if isinstance(outcome, Released):
        return claim.state.name, INTERRUPTED if outcome.begun else RELEASED
    return claim.state.name, ""


def batches_of(ended: list[Ended], most: int | None = None, note: object = None) -> list[OutcomeBatch]:
    """Return outcomes of one model in batches of limited size; the latest outcome of a row comes first."""
    kinds: dict[tuple[str, str, object], list[Ended]] = defaultdict(list)
    for each in ended:
        kinds[*kind_of(each), each[0].operations.part].append(each)
    parts = [part for kind in sorted(kinds, key=itemgetter(0, 1)) for part in _one_per_row(kinds[kind])]
    most = most or len(ended)
    return [OutcomeBatch.of(part[start : start + most], note) for part in parts for start in range(0, len(part), most)]


def _one_per_row(group: list[Ended]) -> Iterator[list[Ended]]:
    # A row occurs twice if its lease was lost and the same worker has claimed it again meanwhile.
    while group:
        latest = {ended[0].pk: ended for ended in group}
        yield list(latest.values())
        if len(latest) == len(group):
            return
        group = [ended for ended in group if latest[ended[0].pk] is not ended]


class StoreParts(NamedTuple):
    """The parts of the operations on one model."""

    transactions: "Transactions"
    leases: "Leases"
    claims: "Claims"
    records: "Records"


@dataclass(slots=True)
class Stopping:
    """Whether a worker has been asked to stop; an attribute, because it is read before each attempt."""

    begun: bool = False


class Operations(Rows):
    """The database interface of one model: its rows, and the methods of its parts.

    Statements that lost to another transaction are repeated, except inside an open transaction.
    """

    def __init__(
        self,
        model: type[Model],
        scope: Scope,
        settings: Settings,
        worker_id: str,
        parts_of: "Callable[[Operations], StoreParts]",
    ) -> None:
        super().__init__(model, scope, settings, worker_id)
        self._parts_of = parts_of
        # All parts share it.
        self.stopping = Stopping()
        self.bind()

    def bind(self) -> None:
        """Make the parts that do the work; their methods are bound once, so that a call costs one lookup."""
        self.transactions, self.leases, self.claims, self.records = self._parts_of(self)
        transactions, leases, claims, records = self.transactions, self.leases, self.claims, self.records
        self.longest_wait = transactions.longest_wait
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
        self.claim_together = retried(self, claims.claim)
        self.claim = self.division.claim if self.division.may_be_divided else self.claim_together
        self.parts, self.parts_with = self.division.parts, self.division.parts_with
        self.part_with = self.division.part_with
        self.release_token = retried(self, claims.release_token)
        self.record = records.record
        self.record_batch = retried(self, records.record_batch)
        self.move_rows = retried(self, records.move_rows)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the state: a handler may pickle its instance, and with it the claim and these operations."""
        given = self.model, self.scope.of_all, self.settings, self.worker_id, self._parts_of
        return _unpickled, (given, self.part)

    def limited(self, scope: Scope, part: object, *, has_own_locks: bool) -> "Operations":
        """Return these operations on a part of the rows; they get their division, and then are bound.

        What the database refused, what is locked and what the model is are known of all rows. ``has_own_locks``: while
        the part is away, the others go on.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, scope=scope, part=part)
        if has_own_locks:
            made.locks = self.locks.alike()
        return made

    def stop(self) -> None:
        """Begin nothing more: the worker was asked to stop."""
        self.stopping.begun = True


def _unpickled(given: Row, value: object) -> Operations:
    operations = Operations(*given)
    return operations if value is None else operations.division.at(value)


def by_scope(operations: Iterable[Operations]) -> dict[Scope, list[Operations]]:
    """Return the operations in each scope."""
    grouped: dict[Scope, list[Operations]] = defaultdict(list)
    for each in operations:
        grouped[each.scope].append(each)
    return grouped
