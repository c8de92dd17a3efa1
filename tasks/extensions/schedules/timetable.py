"""Timetables: fixed periods and cron expressions, with jitter, and rules for missed ticks.

Pure functions: the present time and the random source are passed in.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from stator.graph.options import is_number

# Seconds after which the rule "skip" counts a tick as missed; far later than running workers are.
MISSED_AFTER = 60.0

# Missed ticks of a cron expression are counted up to this number; further ones are skipped without a count.
MAX_COUNTED = 10_000
MAX_IN_TWO_DAYS = 2 * 86400

MAX_PERIOD = 10 * 366 * 86400.0
SAMPLE = datetime(2024, 1, 1, tzinfo=UTC)

SKIP, ONE, ALL = "skip", "one", "all"


@dataclass(frozen=True, slots=True)
class Planned:
    """A future tick: its place on the timetable, and when it is due, jitter included."""

    nominal: datetime
    at: datetime

    def shifted(self, nominal: datetime) -> "Planned":
        """Return a tick at another place on the timetable with the same offset."""
        return Planned(nominal, nominal + (self.at - self.nominal))


@dataclass(frozen=True, slots=True)
class Due:
    """The decision at one time: the tick that fires, the tick after it, and how many ticks were dropped.

    ``fires`` is None if no tick is due; ``following`` is None if none will follow.
    """

    fires: Planned | None
    following: Planned | None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Timetable:
    """A timetable: every ``period`` seconds, or by ``cron`` in a ``zone``; ``jitter`` seconds either way.

    With a period, the step from tick to tick is the period, plus or minus up to ``jitter``. The sum of these offsets
    stays within half a period of the place on the timetable. So schedules that began together spread over the whole
    period, none drifts, and the mean step is exactly the period.
    """

    period: float | None
    cron: str = ""
    zone: str = "UTC"
    jitter: float = 0.0

    def problems(self) -> dict[str, str]:
        """Return one sentence for each option that cannot work."""
        wrong_fields = _zone_problems(self.zone) or (_cron_problems(self.cron, self.zone) if self.cron else {})
        if (self.period is None) == (not self.cron):
            return {"period": "a schedule has either a period or a cron expression"}
        if self.period is not None and not (is_number(self.period) and 0 < self.period <= MAX_PERIOD):
            return {"period": f"period={self.period!r} must be a number of seconds above 0 and at most ten years"}
        if not (is_number(self.jitter) and self.jitter >= 0):
            return {**wrong_fields, "jitter": f"jitter={self.jitter!r} must be a number of seconds, at least 0"}
        if not wrong_fields and self.jitter and self.jitter >= (gap := self.shortest()) / 2:
            wrong_fields["jitter"] = f"jitter={self.jitter:g} must be less than half of the {gap:g} s between ticks"
        return wrong_fields

    def shortest(self) -> float:
        """Return the seconds between ticks without jitter; for cron, the shortest gap in ten ticks from 2024 on."""
        if self.period is not None:
            return self.period
        moments = list(_matches(self.cron, self.zone, SAMPLE, 10))
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
        return min(gaps, default=MAX_PERIOD)

    def first(self, now: datetime, chance: random.Random) -> Planned | None:
        """Return the first tick of a schedule that is planned now; None if there is none."""
        if self.period is not None:
            return self._moved(now + self._step, 0.0, chance)
        # A tick whose place is up to ``jitter`` ahead may have fired before the schedule was planned again.
        nominal = self._after(now + timedelta(seconds=self.jitter))
        return self._moved(nominal, 0.0, chance) if nominal else None

    def redrawn(self, tick: Planned, now: datetime, chance: random.Random) -> Planned:
        """Return a future tick with a new random offset: at the same place, and not before now."""
        offset = (tick.at - tick.nominal).total_seconds() if self.period is not None else 0.0
        drawn = self._moved(tick.nominal, offset, chance)
        return Planned(tick.nominal, max(drawn.at, now))

    def following(self, tick: Planned, chance: random.Random) -> Planned | None:
        """Return the tick after this one; None if there is none."""
        if self.period is not None:
            return self._moved(tick.nominal + self._step, (tick.at - tick.nominal).total_seconds(), chance)
        nominal = self._after(tick.nominal)
        return self._moved(nominal, 0.0, chance) if nominal else None

    def latest(self, tick: Planned, now: datetime) -> tuple[Planned, int]:
        """Return the latest due tick at or after ``tick``, which is due, and how many ticks precede it."""
        end = now - (tick.at - tick.nominal)
        if self.period is not None:
            passed = max(0, (end - tick.nominal) // self._step)
            return tick.shifted(tick.nominal + passed * self._step), passed
        nominal, passed = tick.nominal, 0
        for moment in _matches(self.cron, self.zone, nominal, MAX_COUNTED):
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
            # Reflected at the border, so that all offsets are equally likely and steps stay within the jitter.
            border = self.period / 2
            offset = max(-2 * border - offset, min(2 * border - offset, offset))
        return Planned(nominal, nominal + timedelta(seconds=offset))


def judge(
    timetable: Timetable,
    tick: Planned,
    now: datetime,
    *,
    missed: str,
    deadline: float | None,
    chance: random.Random,
    until: datetime | None = None,
) -> Due:
    """Return the decision at ``now`` about the next tick of a schedule.

    ``missed``: which of several due ticks fire. ``all``: all, one after the other. ``one``: only the latest. ``skip``:
    only the latest, and only if it is at most :data:`MISSED_AFTER` late. No tick fires more than ``deadline`` seconds
    late. ``until``: no tick is due after this time; ``tick`` is not.
    """
    if now < tick.at:
        return Due(None, tick)
    limit = _most_late(missed, deadline)
    end = now if until is None else min(now, until)
    if missed == ALL:
        tick, dropped = _drop_until(timetable, tick, now, limit, end)
    else:
        tick, dropped = timetable.latest(tick, end)
    following = timetable.following(tick, chance)
    if _too_late(tick, now, limit):
        return Due(None, following, dropped + 1)
    return Due(tick, following, dropped)


def judge_last(tick: Planned, following: Planned | None, now: datetime, *, missed: str, deadline: float | None) -> Due:
    """Return the decision about the next tick of a replaced timetable; ``following`` is the new timetable's tick."""
    if now < tick.at:
        return Due(None, following)
    if _too_late(tick, now, _most_late(missed, deadline)):
        return Due(None, following, 1)
    return Due(tick, following)


def _most_late(missed: str, deadline: float | None) -> float | None:
    """Return how many seconds late a tick may fire; None if there is no limit."""
    if missed != SKIP:
        return deadline
    return MISSED_AFTER if deadline is None else min(MISSED_AFTER, deadline)


def _too_late(tick: Planned, now: datetime, limit: float | None) -> bool:
    return limit is not None and (now - tick.at).total_seconds() > limit


def _drop_until(
    timetable: Timetable, tick: Planned, now: datetime, limit: float | None, end: datetime
) -> tuple[Planned, int]:
    """Return ``tick`` if it is not too late, else the latest tick that is, up to ``end``, and how many precede it."""
    if limit is None or not _too_late(tick, now, limit):
        return tick, 0
    return timetable.latest(tick, min(end, now - timedelta(seconds=limit, microseconds=1)))


def _zone_problems(zone: str) -> dict[str, str]:
    if zone in _known_zones():
        return {}
    return {"zone": f"zone={zone!r} is not a time zone; use a name such as 'Europe/Berlin'"}


def _cron_problems(cron: str, zone: str) -> dict[str, str]:
    try:
        first = next(_matches(cron, zone, SAMPLE, 1), None)
    except CronSimError as error:
        return {"cron": f"cron={cron!r} is not a cron expression: {error}"}
    return {} if first else {"cron": f"cron={cron!r} never fires; correct it"}


@lru_cache(maxsize=1)
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _matches(cron: str, zone: str, moment: datetime, most: int) -> Iterator[datetime]:
    """Yield up to ``most`` moments of the expression after ``moment``, in UTC."""
    matched = 0
    for match in CronSim(cron, moment.astimezone(ZoneInfo(zone))):
        found_at = match.astimezone(UTC)
        # In an hour that repeats, cronsim starts from the first pass, so it may return an earlier moment.
        if found_at <= moment:
            continue
        yield found_at
        matched += 1
        if matched == most:
            return


def _last_match(cron: str, zone: str, earliest: datetime, moment: datetime) -> datetime:
    """Return the last moment of the expression up to ``moment``; ``earliest`` is one of its moments."""
    # Search back from a day before, then forward, so that clock changes shift moments as in a search forward.
    before = CronSim(cron, moment.astimezone(ZoneInfo(zone)) - timedelta(days=1), reverse=True)
    start = next((match.astimezone(UTC) for match in before), earliest)
    latest = max(start, earliest)
    for match in _matches(cron, zone, latest, MAX_IN_TWO_DAYS):
        if match > moment:
            break
        latest = match
    return latest
