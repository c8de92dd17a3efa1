"""What is left alone, for how long, and what is forgotten."""

import threading
from types import SimpleNamespace

import pytest

from stator.db import suspensions as module
from stator.db.suspensions import ResumptionPace, Suspensions


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_what_is_suspended_is_left_alone_for_twice_as_long_each_time_in_a_row(clock):
    suspended = Suspensions(ResumptionPace(1.0, 5.0, stale=10.0))
    for times, pause in enumerate((1.0, 2.0, 4.0, 5.0, 5.0), 1):
        assert suspended.suspend("claim", "no").times == times
        assert (suspended.allow("claim"), suspended.remaining("claim")) == (False, pause)
        clock[0] += pause
        assert (suspended.allow("claim"), suspended.remaining("claim")) == (True, 0.0)
    assert suspended.end("claim").times == 5
    assert (suspended.end("claim"), suspended.suspend("claim", "no").times) == (None, 1)


def test_what_was_not_tried_for_long_is_forgotten_by_the_next_one(clock):
    suspended = Suspensions(ResumptionPace(1.0, stale=10.0))
    suspended.suspend("claim", "no")
    clock[0] += 10.5
    suspended.suspend("record", "no")
    assert "claim" in suspended
    clock[0] += 0.6
    suspended.suspend("renew", "no")
    assert set(suspended.held) == {"record", "renew"}


def test_without_a_pace_it_is_left_alone_until_somebody_ends_it(clock):
    suspended = Suspensions()
    suspended.suspend("table", "it lacks a column")
    clock[0] += 1e9
    assert not suspended.allow("table")
    suspended.suspend("row", "no", ResumptionPace(1.0))
    assert not suspended.allow("row")
    suspended.end("table")
    assert (suspended.allow("table"), suspended.allow("row")) == (True, False)


def test_pause_that_varies_is_at_least_half_as_long():
    pauses = {ResumptionPace(2.0, varies=True).seconds(1) for _ in range(50)}
    assert len(pauses) > 1
    assert 1.0 <= min(pauses) <= max(pauses) <= 2.0


def test_threads_lose_no_suspension_of_each_other():
    suspended = Suspensions()

    def suspend(name):
        for number in range(200):
            suspended.suspend((name, number), "no")
            suspended.end((name, number - 1))

    threads = [threading.Thread(target=suspend, args=[name]) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(suspended.held) == {(name, 199) for name in range(4)}
