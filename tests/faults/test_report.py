"""The table of a long run, from a history that is known."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.faults.events import Event, History, Row
from tests.faults.report import Report

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def claimed(number, until, version=0):
    return Row("fresh", version, False, UUID(int=number), at(until), attempts=number)


def history():
    free, first, second = Row("fresh"), claimed(1, 10), claimed(2, 30)
    reaped = Row("fresh", attempts=1, crashes=1)
    done = Row("done", 1)
    return History(
        [
            Event("1", at(0), "a", None, free),
            Event("1", at(1), "a", free, first),
            Event("1", at(11), "b", first, reaped),
            Event("1", at(12.5), "b", reaped, second),
            Event("1", at(13), "b", second, done),
            Event("2", at(0), "a", None, free),
        ]
    )


def test_lost_leases_are_put_down_to_the_fault_before_them():
    report = Report("3 workers", [history()], [(at(2), "kill"), (at(12), "freeze")], refused=4)
    assert report.recoveries() == {"kill": [2.5]}
    assert report.lost == 1
    assert report.doubled == 0
    lines = report.lines()
    assert [line.split() for line in lines[:7]] == [
        ["load", "3", "workers"],
        ["faults", "2"],
        ["objects", "2"],
        ["attempts", "2"],
        ["late", "writes", "refused", "4"],
        ["lost", "1"],
        ["done", "twice", "0"],
    ]
    assert [line.split() for line in lines[-2:]] == [
        ["freeze", "1", "0", "-", "-", "-"],
        ["kill", "1", "1", "2.50", "2.50", "2.50"],
    ]


def test_move_that_was_made_twice_is_counted():
    twice = history()
    second, done = twice.events[3].new, twice.events[4].new
    twice.events.append(Event("1", at(14), "a", second, done))
    assert Report("", [twice]).doubled == 1
