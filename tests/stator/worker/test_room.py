"""How much a process may claim: by its places, its threads and how long attempts take."""

import time
from types import SimpleNamespace

import pytest

from stator.conf import Settings
from stator.worker.room import AHEAD, ALL_ON_LOOP, MAX_AHEAD, SHORT, CallThreads, Room
from tests.stator.worker.fakes import FakeClaim, FakeOperations


def room_of(**settings):
    return Room(Settings(**settings))


def make_short(room, is_async=True):
    for _ in range(100):
        room.took("app.model", is_async, 0.0001)


@pytest.mark.parametrize("is_async", [True, False])
def test_nothing_is_claimed_ahead_of_attempts_that_are_new_or_slow(is_async):
    room = room_of(CONCURRENCY=5, THREADS=5)
    assert room.rows("app.model", is_async, 1, 0) == 5
    make_short(room, is_async=is_async)
    assert room.rows("app.model", is_async, 1, 0) > 5
    room.took("app.model", is_async, 1.01 * SHORT)
    assert room.rows("app.model", is_async, 1, 0) == 5


def test_one_slow_attempt_counts_at_once_and_short_ones_bit_by_bit():
    room = room_of()
    room.took("app.model", True, 0.0)
    assert room.ahead("app.model", True, 10) == 0
    make_short(room)
    assert room.ahead("app.model", True, 10) == 10 * MAX_AHEAD
    room.took("app.model", True, AHEAD / 2)
    assert room.ahead("app.model", True, 10) == 20
    room.took("app.model", True, 0.09)
    assert room.ahead("app.model", True, 10) == 5
    assert room.ahead("app.model", False, 10) == room.ahead("app.other", True, 10) == 0


def test_nothing_is_claimed_ahead_while_no_place_is_free():
    room = room_of(CONCURRENCY=2)
    make_short(room)
    room.placed = 2
    assert room.rows("app.model", True, 1, 0) == 0


def test_threads_take_places_and_those_on_the_loop_take_them_from_threads():
    room = room_of(CONCURRENCY=10, THREADS=4)
    room.threaded = 3
    assert room.rows("app.model", True, 1, 0) == 7
    room.threaded = 40
    assert room.rows("app.model", True, 1, 0) == 6
    room.threaded, room.placed = 0, 8
    make_short(room, is_async=False)
    assert room.rows("app.model", False, 1, 0) == 2
    room.placed = 10
    assert room.rows("app.model", False, 1, 0) == 0


def test_short_attempts_in_threads_are_claimed_ahead_of_all_that_are_not_stuck():
    room = room_of(THREADS=3)
    make_short(room, is_async=False)
    assert room.rows("app.model", False, 1, 0) == 3 * (1 + MAX_AHEAD)
    room.stuck.add(1)
    assert room.rows("app.model", False, 1, 0) == 2 * (1 + MAX_AHEAD)
    room.threaded = room.ahead_of_threads = 2 * (1 + MAX_AHEAD) - 1
    assert room.rows("app.model", False, 1, 0) == 0
    assert room.rows("app.slow", False, 1, 0) == 0
    room.thread_freed = time.monotonic() + 60
    assert room.rows("app.slow", False, 1, 0) == 2
    room.threaded += 1
    assert room.rows("app.slow", False, 1, 0) == 1


# Threads in which asynchronous handlers call their code.


class Threads(CallThreads):
    """Threads of a model; rows that need none are those in ``on_loop``."""

    def __init__(self, count=3, on_loop=()):
        pool = SimpleNamespace(count=count, exhausted=False, hand_back=self.hand_back, rest=lambda **how: None)
        super().__init__(pool, lambda claim: claim not in on_loop, self.note_spared, lambda claim: None)
        self.spared, self.handed_back = [], []

    def note_spared(self, worker_id, spares):
        (self.spared.append if spares else self.spared.remove)(worker_id)
        return True

    def hand_back(self, waiting_since):
        self.handed_back.append(waiting_since)
        return True

    def given(self):
        return self.pool, self._is_needed, self.spare, self.attempt_of


def test_handlers_that_need_threads_have_the_room_of_these():
    room = room_of(CONCURRENCY=100)
    claims = [FakeClaim(FakeOperations(), "awaited") for _ in range(ALL_ON_LOOP)]
    threads = room.call_threads["app.model"] = Threads(on_loop=claims)
    assert [room.rows("app.model", True, 1, 0), room.rows("app.other", True, 1, 0)] == [3, 100]
    room.calling["app.model"] = 2
    assert room.rows("app.model", True, 1, 0) == 1
    room.calling["app.model"] = 3
    assert room.rows("app.model", True, 1, 0) == 0
    assert room.rows("app.model", True, 1, 0, without_threads=True) == 100
    for claim in claims:
        threads.note_claimed(claim)
    assert room.rows("app.model", True, 1, 0) == 100
