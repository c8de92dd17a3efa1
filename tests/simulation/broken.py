"""Protocols with one mistake each. The checker must find each of them within some thousand schedules."""

import sqlite3
from contextlib import suppress
from typing import Any

from tests.simulation import statements as ask
from tests.simulation.statements import Held
from tests.simulation.store import FREE, ORDER, TABLE, Store


class GuardByKey(Store):
    """A record is guarded by the primary key alone."""

    fence = "pk = :pk"


class GuardByState(Store):
    """A record is guarded by the state that the handler left, as in Takahe's Stator."""

    fence = "pk = :pk AND state = :state"


class GuardByAnyClaim(Store):
    """A record asks whether the row is claimed, not by whom."""

    fence = "pk = :pk AND claim NOTNULL AND state = :state"


class RenewWithoutClaim(Store):
    """A heartbeat extends whatever lease the row has."""

    renewable = "pk = :pk AND claim NOTNULL"


class ReapAtWill(Store):
    """The reaper does not look at the clock."""

    expired = "claim NOTNULL"


class ReapWhatWasRead(Store):
    """The reaper reads first and writes what it read, without the guard in the statement that writes."""

    found: tuple[int, ...] = ()

    def do_reap(self, request: ask.Reap, actor: str, monotonic: float) -> None:
        for pk in self.found:
            self.write(f"UPDATE job SET {self.reaped} WHERE pk = :pk AND claim NOTNULL", pk=pk)
        self.found = tuple(pk for (pk,) in self.write(f"SELECT pk FROM job WHERE {self.expired}"))


class ReapForNothing(Store):
    """The reaper counts no crash."""

    reaped = f"ready = 1, next_attempt = NULL, {FREE}"


class ReapByTheClockAlone(Store):
    """Leases made before the clock was set back stand until it has caught up."""

    expired = "claim NOTNULL AND locked_until <= :now"


class ClaimWhatIsClaimed(Store):
    """A claim does not ask whether somebody holds the row."""

    picked = Store.picked.replace("WHERE ready AND claim IS NULL AND", "WHERE")


class ClaimForNothing(Store):
    """A claim counts no attempt."""

    claimed = Store.claimed.replace(Store.counted, "attempts = attempts")


class ClaimInQuarantine(Store):
    """A claim and the scheduling pass take rows however many workers they have killed."""

    picked = Store.picked.replace("crashes < :max_crashes", "TRUE")
    reaped = f"crashes = crashes + 1, ready = 1, next_attempt = NULL, {FREE}"


class OneTokenForEachWorker(Store):
    """A worker uses the same token for all its claims."""

    def do_claim(self, request: ask.Claim, actor: str, monotonic: float) -> list[Held]:
        token = type(request.token)(int=request.token.int >> 32 << 32)
        return super().do_claim(ask.Claim(token, request.limit, request.crashes), actor, monotonic)


class MoveByHandKeepsTheClaim(Store):
    """A move by hand leaves the claim to its holder."""

    moved_by_hand = Store.moved_by_hand.replace(FREE, "locked_until = locked_until")


class MoveByHandKeepsTheVersion(Store):
    """A move by hand does not count as one."""

    moved_by_hand = Store.moved_by_hand.replace("version = version + 1, ", "")


class SaveWritesAll(Store):
    """A save writes the framework's columns as the instance has them: it revives the claim that the handler had."""

    saved = "claim = :token, locked_until = :until, state = :state"

    def save(self, held: Held) -> None:
        # What the index of the exclusive key refuses changes nothing.
        with suppress(sqlite3.IntegrityError):
            super().save(held)


class RepeatWithoutGuard(Store):
    """A record that is sent again is not guarded any more."""

    def do_record(self, request: ask.Record, actor: str, monotonic: float) -> bool:
        if request.again:
            self.fence = "pk = :pk"
        written = super().do_record(request, actor, monotonic)
        self.fence = Store.fence
        return written


class RepeatIsNotRecognised(Store):
    """A record that was written but whose reply was lost counts as refused: the caller is told of a lost lease."""

    def is_written(self, held: Held, outcome: Any) -> bool:
        return False


class HandBackCountsAsAttempt(Store):
    """A released row keeps the attempt that never took place."""

    def do_handback(self, request: ask.HandBack, actor: str, monotonic: float) -> None:
        self.write(f"UPDATE job SET ready = 1, {FREE} WHERE claim = :token", token=request.token.hex)


class KeysAreNotExclusive(Store):
    """Neither the claim nor an index looks at the exclusive key."""

    picked = Store.picked.replace("PARTITION BY coalesce(key, pk)", "").replace(
        "AND NOT EXISTS (SELECT 1 FROM job WHERE job.key = mine.key AND job.claim IS NOT NULL)", ""
    ).replace("turn = 1", "TRUE")  # fmt: skip

    schema = TABLE


class OldestFirst(Store):
    """A claim goes by age alone, whatever the priority."""

    picked = Store.picked.replace(ORDER, "coalesce(next_attempt, changed), pk")


class EffectBeforeTheFence(Store):
    """The effects of an atomic state are written before its claim is looked at."""

    def do_record(self, request: ask.Record, actor: str, monotonic: float) -> bool:
        if request.outcome.to and request.held.state in self.atomic:
            self.effects.append(request.held)
        self.atomic = frozenset()
        written = super().do_record(request, actor, monotonic)
        del self.atomic
        return written


# Each with the rules of the checker of which at least one must be broken.
BROKEN: dict[type[Store], set[str]] = {
    GuardByKey: {"I4"}, GuardByState: {"I4"}, GuardByAnyClaim: {"I4"}, RenewWithoutClaim: {"I1"}, ReapAtWill: {"I1"},
    ReapWhatWasRead: {"I1"}, ReapForNothing: {"I4", "I5", "I6"}, ReapByTheClockAlone: {"I8"},
    ClaimWhatIsClaimed: {"I1"}, ClaimForNothing: {"I6"}, ClaimInQuarantine: {"I1"}, OneTokenForEachWorker: {"I5"},
    MoveByHandKeepsTheClaim: {"I2"}, MoveByHandKeepsTheVersion: {"I2"}, SaveWritesAll: {"I2"},
    RepeatWithoutGuard: {"I4", "I2"}, RepeatIsNotRecognised: {"P5"}, HandBackCountsAsAttempt: {"I4", "I6"},
    KeysAreNotExclusive: {"I9"}, OldestFirst: {"I10"}, EffectBeforeTheFence: {"I3"},
}  # fmt: skip
