"""When a backlog is done: what waits, by the smaller of its limit and of the moves of the last minutes.

All pages, commands and sentences ask :func:`estimate`, so that no two of them differ.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stator.graph.durations import span
from stator.graph.states import State
from stator.rows.clock import local_moment, moment_text
from stator.rows.dates import Deadline
from stator.rows.problem import Numbers

# Seconds of the last moves, and how many moves a limit has to allow in them so that their number says something.
LATELY, ENOUGH = 300.0, 10

# Seconds: a later end is told as its date.
WEEK = 7 * 86400.0

# A century: no date is later.
MOST = 100 * 366 * 86400.0

UNITS = (("s", 1), ("m", 60), ("h", 3600), ("d", 86400))


@dataclass(frozen=True, slots=True)
class Estimate:
    """So many objects at a pace, in objects a second. ``now``: when the pace was read; ``more``: there are more."""

    count: int
    pace: float
    now: datetime
    more: bool = False

    @property
    def seconds(self) -> float:
        """Seconds until the last of them is done."""
        return min(MOST, self.count / self.pace)

    @property
    def numbers(self) -> Numbers:
        """The numbers for programs."""
        return {"per_second": self.pace, "done_in": self.seconds}

    @property
    def when(self) -> str:
        """When the last of them is done, as a phrase: ``at 06:10``, ``on 2026-11-29 at 06:10``."""
        now, done = (local_moment(each) for each in (self.now, self.now + timedelta(seconds=self.seconds)))
        day = "" if done.date() == now.date() else f"{'after' if self.more else 'on'} {done:%Y-%m-%d}"
        if self.seconds > WEEK:
            return day
        return f"{day} at {done:%H:%M}" if day else f"{'after' if self.more else 'at'} {done:%H:%M}"

    @property
    def short(self) -> str:
        """The end and the pace for a table: ``at 06:10 (4/s)``."""
        return f"{self.when} ({pace_text(self.pace)})"

    def __str__(self) -> str:
        return f"at {pace_text(self.pace)}: done {self.when}"


def estimate(
    count: int,
    now: datetime,
    *,
    moves: float | None = None,
    limit: float | None = None,
    seconds: float = LATELY,
    more: bool = False,
) -> Estimate | None:
    """Return when so many objects are done; None if neither a limit nor the moves say so, or if nothing moves.

    ``moves``: how many moved a second, in the last ``seconds``; None if that is not known. ``limit``: the most.
    """
    # Of a limit that allows less, that time shows nothing, or one move too many.
    is_slow = limit is not None and limit * seconds < ENOUGH
    known = [each for each in (limit, None if is_slow else moves) if each is not None]
    pace = min(known, default=0.0)
    return Estimate(count, pace, now, more) if count and pace > 0 else None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the objects of a model moved in the last minutes: how many a second left each state, and all states."""

    now: datetime
    total: float
    shares: dict[str, float] = field(default_factory=dict)

    def estimate(self, count: int, states: Collection[str] = (), *, more: bool = False) -> Estimate | None:
        """Return when so many objects in some states are done; ``states``: none for a model with one."""
        share = sum(self.shares.get(name, 0.0) for name in states) if self.shares and states else 1.0
        return estimate(count, self.now, moves=self.total * share, more=more)


def pace_text(per_second: float) -> str:
    """Return a pace in the unit in which it is at least 1, if there is one: ``4/s``, ``3.6/h``."""
    unit, seconds = next((each for each in UNITS if per_second * each[1] >= 1), UNITS[-1])
    number = per_second * seconds
    return f"{number:,.0f}/{unit}" if number >= 10 or number == round(number) else f"{number:.2g}/{unit}"


def passes(deadline: Deadline, moment: datetime | None, now: datetime) -> str:
    """Return when an object times out by a date, as a phrase."""
    if moment is None:
        return f"does not time out to {deadline.to}, since {deadline.source} is null"
    left = (moment - now).total_seconds()
    if left <= 0:
        return f"timed out {span(-left)} ago, by {deadline.source}"
    return f"times out to {deadline.to} at {moment_text(moment)} (in {span(left)}), from {deadline.source}"


def times_out(state: State | None, since: float, now: datetime) -> tuple[str, float]:
    """Return when an object times out that is in a state for so many seconds, as a phrase, and the seconds left.

    The phrase is "" if it does not time out.
    """
    if not (state and state.timeout_state and state.timeout_value):
        return "", 0.0
    left = state.timeout_value - since
    if left > 0:
        return f"times out to {state.timeout_state} {coming(left, now)}", left
    return f"timed out {span(-left)} ago", left


def coming(left: float, now: datetime) -> str:
    """Return a phrase for when something happens in ``left`` seconds; a date if that is more than a week."""
    if left > WEEK:
        return f"on {moment_text(now + timedelta(seconds=left))}"
    return f"in {span(left)}" if left > 0 else "now"
