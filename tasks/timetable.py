"""When ticks are: fixed periods and cron expressions, with jitter, and what becomes of ticks that were missed.

Pure: the present and the source of chance are handed in.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

# Under the policy "skip" a tick that is later than this is missed. Workers that are there are never so late.
MISSED_AFTER = 60.0

# Ticks of a cron expression are passed over one by one up to here; a schedule that missed more jumps.
MOST_COUNTED = 10_000
MOST_IN_TWO_DAYS = 2 * 86400

LONGEST_PERIOD = 10 * 366 * 86400.0
SAMPLE = datetime(2024, 1, 1, tzinfo=UTC)

SKIP, ONE, ALL = "skip", "one", "all"


@dataclass(frozen=True, slots=True)
class Planned:
    """One tick to come: its place on the timetable, and the moment at which it is due, jitter included."""

    nominal: datetime
    at: datetime

    def shifted(self, nominal: datetime) -> "Planned":
        """A tick elsewhere on the timetable with the same offset from its place."""
        return Planned(nominal, nominal + (self.at - self.nominal))


@dataclass(frozen=True, slots=True)
class Due:
    """What a look at the clock means: the tick that fires, the one after it, and how many were dropped.

    ``fires`` is None when none is due; ``following`` is None when no tick will ever follow.
    """

    fires: Planned | None
    following: Planned | None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Timetable:
    """Every ``period`` seconds, or whenever ``cron`` says so in the time of a ``zone``; ``jitter`` seconds either way.

    With a period the step from tick to tick is the period and up to ``jitter`` more or less. The offset that adds up so
    stays within half a period of the place on the timetable: ticks that began at one moment spread over the whole
    period, and none drifts, so the mean is the period exactly.
    """

    period: float | None
    cron: str = ""
    zone: str = "UTC"
    jitter: float = 0.0

    def problems(self) -> dict[str, str]:
        """For each option that cannot work, one sentence."""
        found = _cron_problems(self.cron, self.zone) if self.cron else {}
        if (self.period is None) == (not self.cron):
            return {"period": "a schedule has either a period or a cron expression"}
        if self.period is not None and not (_is_number(self.period) and 0 < self.period <= LONGEST_PERIOD):
            return {"period": f"period={self.period!r} must be a number of seconds above 0 and at most ten years"}
        if not (_is_number(self.jitter) and self.jitter >= 0):
            return {**found, "jitter": f"jitter={self.jitter!r} must be a number of seconds, at least 0"}
        if not found and self.jitter and self.jitter >= (gap := self.shortest()) / 2:
            found["jitter"] = f"jitter={self.jitter:g} must be less than half of the {gap:g} s between ticks"
        return found

    def shortest(self) -> float:
        """Seconds between two ticks without jitter; for a cron expression the fewest among its next ones."""
        if self.period is not None:
            return self.period
        moments = list(_matches(self.cron, self.zone, SAMPLE, 10))
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
        return min(gaps, default=LONGEST_PERIOD)

    def first(self, now: datetime, chance: random.Random) -> Planned | None:
        """The first tick of a schedule that is planned now; None when there is none."""
        if self.period is not None:
            return self._moved(now + self._step, 0.0, chance)
        # Up to so much later a tick may have fired already, before the plan was made anew.
        nominal = self._after(now + timedelta(seconds=self.jitter))
        return self._moved(nominal, 0.0, chance) if nominal else None

    def redrawn(self, tick: Planned, now: datetime, chance: random.Random) -> Planned:
        """A tick to come of a timetable that differs in its jitter alone: in its place, and no sooner than now."""
        offset = (tick.at - tick.nominal).total_seconds() if self.period is not None else 0.0
        drawn = self._moved(tick.nominal, offset, chance)
        return Planned(tick.nominal, max(drawn.at, now))

    def following(self, tick: Planned, chance: random.Random) -> Planned | None:
        """The tick after one; None when there is none."""
        if self.period is not None:
            return self._moved(tick.nominal + self._step, (tick.at - tick.nominal).total_seconds(), chance)
        nominal = self._after(tick.nominal)
        return self._moved(nominal, 0.0, chance) if nominal else None

    def latest(self, tick: Planned, now: datetime) -> tuple[Planned, int]:
        """The latest tick that is due, from one that is; and how many are passed over on the way."""
        end = now - (tick.at - tick.nominal)
        if self.period is not None:
            passed = max(0, (end - tick.nominal) // self._step)
            return tick.shifted(tick.nominal + passed * self._step), passed
        nominal, passed = tick.nominal, 0
        for moment in _matches(self.cron, self.zone, nominal, MOST_COUNTED):
            if moment > end:
                return tick.shifted(nominal), passed
            nominal, passed = moment, passed + 1
        return tick.shifted(_last_match(self.cron, self.zone, nominal, end)), passed

    @property
    def _step(self) -> timedelta:
        return timedelta(seconds=self.period or 0.0)

    def _after(self, moment: datetime) -> datetime | None:
        return next(_matches(self.cron, self.zone, moment, 1), None)

    def _moved(self, nominal: datetime, offset: float, chance: random.Random) -> Planned:
        offset += chance.uniform(-self.jitter, self.jitter)
        if self.period is not None:
            # Turned back at the border: so every offset becomes equally likely, and steps stay as long as they may be.
            border = self.period / 2
            offset = max(-2 * border - offset, min(2 * border - offset, offset))
        return Planned(nominal, nominal + timedelta(seconds=offset))


def judge(
    timetable: Timetable, tick: Planned, now: datetime, *, missed: str, deadline: float | None, chance: random.Random
) -> Due:
    """What is to be done at ``now`` about the next tick of a schedule.

    ``missed``: of several ticks that are due, ``all`` fire, each in its turn, or the latest alone (``one``), and even
    that not when it is late by more than :data:`MISSED_AFTER` (``skip``). None fires later than ``deadline`` seconds.
    """
    if now < tick.at:
        return Due(None, tick)
    limit = _most_late(missed, deadline)
    if missed == ALL:
        tick, dropped = _drop_until(timetable, tick, now, limit)
    else:
        tick, dropped = timetable.latest(tick, now)
    following = timetable.following(tick, chance)
    if _too_late(tick, now, limit):
        return Due(None, following, dropped + 1)
    return Due(tick, following, dropped)


def judge_last(tick: Planned, following: Planned | None, now: datetime, *, missed: str, deadline: float | None) -> Due:
    """As :func:`judge`, about the next tick of a timetable that is there no more; ``following`` is of the new one."""
    if now < tick.at:
        return Due(None, following)
    if _too_late(tick, now, _most_late(missed, deadline)):
        return Due(None, following, 1)
    return Due(tick, following)


def _most_late(missed: str, deadline: float | None) -> float | None:
    """By how many seconds a tick that fires may be late; None where that does not matter."""
    if missed != SKIP:
        return deadline
    return MISSED_AFTER if deadline is None else min(MISSED_AFTER, deadline)


def _too_late(tick: Planned, now: datetime, limit: float | None) -> bool:
    return limit is not None and (now - tick.at).total_seconds() > limit


def _drop_until(timetable: Timetable, tick: Planned, now: datetime, limit: float | None) -> tuple[Planned, int]:
    """The latest tick that is too late, from one that is: the one after it is the first to fire."""
    if limit is None or not _too_late(tick, now, limit):
        return tick, 0
    return timetable.latest(tick, now - timedelta(seconds=limit, microseconds=1))


def _cron_problems(cron: str, zone: str) -> dict[str, str]:
    if zone not in _known_zones():
        return {"zone": f"zone={zone!r} is no time zone; use a name such as 'Europe/Berlin'"}
    try:
        first = next(_matches(cron, zone, SAMPLE, 1), None)
    except CronSimError as error:
        return {"cron": f"cron={cron!r} is no cron expression: {error}"}
    return {} if first else {"cron": f"cron={cron!r} never comes"}


@lru_cache(maxsize=1)
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _matches(cron: str, zone: str, moment: datetime, most: int) -> Iterator[datetime]:
    """Up to ``most`` moments after ``moment`` that the expression means, in UTC."""
    found = 0
    for match in CronSim(cron, moment.astimezone(ZoneInfo(zone))):
        came = match.astimezone(UTC)
        # Within an hour that the clock shows twice, times of day are first looked for in its first pass.
        if came <= moment:
            continue
        yield came
        found += 1
        if found == most:
            return


def _last_match(cron: str, zone: str, earliest: datetime, moment: datetime) -> datetime:
    """The last moment up to ``moment`` that the expression means; ``earliest`` is one."""
    # Backwards a day further than needed, then forwards: what a change of the clock moves is the same then as always.
    before = CronSim(cron, moment.astimezone(ZoneInfo(zone)) - timedelta(days=1), reverse=True)
    start = next((match.astimezone(UTC) for match in before), earliest)
    latest = max(start, earliest)
    for match in _matches(cron, zone, latest, MOST_IN_TWO_DAYS):
        if match > moment:
            break
        latest = match
    return latest


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
