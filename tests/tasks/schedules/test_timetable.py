"""When ticks are, and which of them fire that were missed. No database."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tasks.extensions.schedules import timetable as module
from tasks.extensions.schedules.timetable import ALL, ONE, SKIP, Due, Planned, Timetable, judge

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
MINUTELY = Timetable(60.0)
HOURLY = Timetable(None, "0 * * * *")


def after(seconds, start=NOON):
    return start + timedelta(seconds=seconds)


def at(text, zone="UTC"):
    return module.datetime.fromisoformat(text).replace(tzinfo=module.ZoneInfo(zone)).astimezone(UTC)


def utc(*texts):
    return [at(text) for text in texts]


def ticks(timetable, start, count, seed=1):
    chance = random.Random(seed)
    found = [timetable.first(start, chance)]
    while len(found) < count:
        found.append(timetable.following(found[-1], chance))
    return found


def moments(timetable, start, count):
    return [tick.at for tick in ticks(timetable, start, count)]


# Periods and jitter


def test_period_without_jitter_is_a_grid_from_its_start():
    assert moments(MINUTELY, NOON, 3) == [after(60), after(120), after(180)]


def test_first_tick_is_a_period_from_now_and_jitter_either_way():
    offsets = [(ticks(Timetable(60.0, jitter=15), NOON, 1, seed)[0].at - NOON).total_seconds() for seed in range(500)]
    assert 45 <= min(offsets) < 47
    assert 73 < max(offsets) <= 75


def test_ticks_never_drift_so_the_mean_period_is_exact():
    found = ticks(Timetable(60.0, jitter=15), NOON, 10_001)
    assert found[-1].nominal - found[0].nominal == timedelta(seconds=600_000)
    assert max(abs((tick.at - tick.nominal).total_seconds()) for tick in found) <= 30


def test_those_that_began_at_one_moment_spread_over_the_whole_period():
    timetable = Timetable(60.0, jitter=15)
    tenth = [ticks(timetable, NOON, 11, seed)[-1].at for seed in range(1000)]
    seconds = Counter(int((moment - after(630)).total_seconds() // 1) for moment in tenth)
    assert set(seconds) <= set(range(60))
    assert max(seconds.values()) < 3 * 1000 / 60


def test_jitter_of_cron_is_about_each_of_its_moments():
    found = ticks(Timetable(None, "0 * * * *", jitter=600), NOON, 300)
    assert [tick.nominal for tick in found] == [after(3600 * hour) for hour in range(1, 301)]
    offsets = [(tick.at - tick.nominal).total_seconds() for tick in found]
    assert -600 <= min(offsets) < -500
    assert 500 < max(offsets) <= 600


def test_cron_that_is_planned_anew_does_not_repeat_a_tick_that_came_early():
    assert ticks(Timetable(None, "0 * * * *", jitter=600), after(-599), 1)[0].nominal == after(3600)
    assert ticks(Timetable(None, "0 * * * *", jitter=600), after(-601), 1)[0].nominal == NOON


def test_jitter_that_changed_is_drawn_anew_about_the_same_place_and_never_in_the_past():
    hourly, tick = Timetable(None, "0 * * * *", jitter=600), Planned(NOON, after(100))
    moments = [hourly.redrawn(tick, after(-300), random.Random(seed)) for seed in range(300)]
    assert {each.nominal for each in moments} == {NOON}
    assert min(each.at for each in moments) == after(-300)
    assert after(500) < max(each.at for each in moments) <= after(600)


def test_jitter_of_a_period_that_changed_goes_on_from_where_the_tick_is():
    timetable, tick = Timetable(60.0, jitter=5), Planned(NOON, after(20))
    offsets = [(timetable.redrawn(tick, NOON, random.Random(seed)).at - NOON).total_seconds() for seed in range(300)]
    assert 15 <= min(offsets) < 16
    assert 24 < max(offsets) <= 25


# Cron and zones


@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        ("*/5 * * * *", "UTC", "2025-06-01T12:01",
         utc("2025-06-01T12:05", "2025-06-01T12:10", "2025-06-01T12:15")),
        ("0 9 * * MON", "UTC", "2025-06-01T12:00",
         utc("2025-06-02T09:00", "2025-06-09T09:00", "2025-06-16T09:00")),
        ("0 9 * * *", "Europe/Berlin", "2025-06-01T12:00",
         utc("2025-06-02T07:00", "2025-06-03T07:00", "2025-06-04T07:00")),
        ("0 9 * * *", "Asia/Kolkata", "2025-06-01T00:00",
         utc("2025-06-01T03:30", "2025-06-02T03:30", "2025-06-03T03:30")),
        # Into summer: the clock shows no 02:30 on the 30th; the tick comes when it would have been, at 03:00 there.
        ("30 2 * * *", "Europe/Berlin", "2025-03-29T00:00",
         utc("2025-03-29T01:30", "2025-03-30T01:00", "2025-03-31T00:30")),
        # Into winter: the clock shows 02:30 twice on the 26th; the tick comes once, the first time.
        ("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00",
         utc("2025-10-26T00:30", "2025-10-27T01:30", "2025-10-28T01:30")),
        # Planned within the second of the two hours, the first time is past.
        ("30 2 * * *", "Europe/Berlin", "2025-10-26T01:10",
         utc("2025-10-27T01:30", "2025-10-28T01:30", "2025-10-29T01:30")),
        # What comes several times an hour goes on through both.
        (
            "*/30 * * * *", "Europe/Berlin", "2025-03-30T00:30",
            utc("2025-03-30T01:00", "2025-03-30T01:30", "2025-03-30T02:00"),
        ),
        (
            "*/30 * * * *", "Europe/Berlin", "2025-10-26T00:00",
            utc("2025-10-26T00:30", "2025-10-26T01:00", "2025-10-26T01:30"),
        ),
    ],
)  # fmt: skip
def test_cron_in_the_time_of_a_zone(cron, zone, start, expected):
    timetable = Timetable(None, cron, zone)
    assert timetable.problems() == {}
    assert moments(timetable, at(start), 3) == expected


# What was missed

# Of a schedule every minute whose next tick is at 0: now, policy, deadline; which fires, which follows, how many are
# dropped.
MISSED = [
    (-1, ONE, None, None, 0, 0),
    (0, ONE, None, 0, 60, 0),
    (59, ONE, None, 0, 60, 0),
    (150, ONE, None, 120, 180, 2),
    (86400, ONE, None, 86400, 86460, 1440),
    (150, ONE, 20, None, 180, 3),
    (150, ONE, 30, 120, 180, 2),
    (0, SKIP, None, 0, 60, 0),
    (59, SKIP, None, 0, 60, 0),
    (150, SKIP, None, 120, 180, 2),
    (150, SKIP, 20, None, 180, 3),
    (0, ALL, None, 0, 60, 0),
    (150, ALL, None, 0, 60, 0),
    (150, ALL, 100, None, 60, 1),
    (150, ALL, 45, None, 120, 2),
    (150, ALL, 20, None, 180, 3),
    (-1, SKIP, 5, None, 0, 0),
    (-1, ALL, 5, None, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("timetable", [MINUTELY, Timetable(None, "* * * * *")], ids=["period", "cron"])
@pytest.mark.parametrize(("now", "missed", "deadline", "fires", "follows", "dropped"), MISSED)
def test_policy_decides_which_of_the_missed_ticks_fires(timetable, now, missed, deadline, fires, follows, dropped):
    due = judge(timetable, Planned(NOON, NOON), after(now), missed=missed, deadline=deadline, chance=random.Random(1))
    fired = None if fires is None else Planned(after(fires), after(fires))
    assert due == Due(fired, Planned(after(follows), after(follows)), dropped)


@pytest.mark.parametrize("timetable", [Timetable(3600.0), HOURLY], ids=["period", "cron"])
def test_skip_lets_no_tick_fire_that_is_late_by_more_than_a_minute(timetable):
    for late, fires in ((60, True), (61, False), (1800, False)):
        due = judge(timetable, Planned(NOON, NOON), after(late), missed=SKIP, deadline=None, chance=random.Random(1))
        assert (due.fires is not None, due.dropped) == (fires, not fires)
        assert due.following.at == after(3600)


@pytest.mark.parametrize("timetable", [MINUTELY, Timetable(None, "* * * * *")], ids=["period", "cron"])
@pytest.mark.parametrize(
    ("missed", "deadline", "fires", "dropped"),
    [(ONE, None, 120, 2), (ONE, 1800, None, 3), (SKIP, None, None, 3), (ALL, None, 0, 0), (ALL, 1800, None, 3)],
)
def test_end_that_has_passed_leaves_only_ticks_that_were_due_before_it(timetable, missed, deadline, fires, dropped):
    rules = {"missed": missed, "deadline": deadline, "until": after(150)}
    due = judge(timetable, Planned(NOON, NOON), after(3600), chance=random.Random(1), **rules)
    fired = None if fires is None else Planned(after(fires), after(fires))
    assert (due.fires, due.dropped) == (fired, dropped)


def test_cron_that_missed_more_than_is_counted_jumps():
    yearly = Timetable(None, "* * * * *", "Europe/Berlin")
    start = at("2025-01-01T00:00")
    due = judge(
        yearly, Planned(start, start), at("2025-12-24T18:00:30"), missed=ONE, deadline=None, chance=random.Random(1)
    )
    assert due.fires.at == at("2025-12-24T18:00")
    assert due.following.at == at("2025-12-24T18:01")
    assert due.dropped == module.MAX_COUNTED


# What cannot work


@pytest.mark.parametrize(
    ("timetable", "field", "words"),
    [
        (Timetable(None), "period", "either a period or a cron"),
        (Timetable(60.0, "* * * * *"), "period", "either a period or a cron"),
        (Timetable(0.0), "period", "above 0"),
        (Timetable(float("nan")), "period", "above 0"),
        (Timetable(None, "* * * *"), "cron", "Wrong number of fields"),
        (Timetable(None, "0 0 30 2 *"), "cron", "Bad day-of-month"),
        (Timetable(None, "0 0 31 2,4 *"), "cron", "'0 0 31 2,4 *'"),
        (Timetable(None, "0 0 * * *", "Europe/Atlantis"), "zone", "not a time zone"),
        (Timetable(60.0, jitter=30), "jitter", "less than half of the 60 s"),
        (Timetable(60.0, jitter=-1), "jitter", "at least 0"),
        (Timetable(None, "*/5 * * * *", jitter=150), "jitter", "less than half of the 300 s"),
    ],
)
def test_problem_is_named_in_one_line(timetable, field, words):
    problems = timetable.problems()
    assert list(problems) == [field]
    assert words in problems[field]
    assert "\n" not in problems[field]
