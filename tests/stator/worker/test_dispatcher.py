"""Which model is claimed next, how much, and what becomes of rows that lost leases."""

from types import SimpleNamespace

import pytest
from django.db import OperationalError

from stator.db.suspensions import Suspensions
from stator.rows.claimable import Crashes
from stator.worker.dispatcher import FEW, STREAK, Dispatcher, Doubt, Lane, Lanes, lanes_of
from stator.worker.outage import Outages
from tests.stator.worker.fakes import FakeOperations, at_once, elsewhere, lock_timeout


class Room:
    """In place of the attempts: keeps what was begun, and says how much room there is."""

    def __init__(self, room):
        self.left, self.begun, self.running = room, [], {}

    def room(self, label, is_async, batch=1):
        return max(0, self.left)

    def begin(self, claims):
        self.begun += claims
        self.running |= {id(claim): claim for claim in claims}
        self.left -= len(claims)


class Alone:
    """In place of processes: so many places, and whether others have to wait."""

    engaged = False

    def __init__(self, places=0, waits=False):
        self.places, self.waits, self.begun = places, waits, []

    def has_room(self, *, make):
        return len(self.begun) < self.places

    def begin(self, claims):
        self.begun += claims

    def needs_room(self, is_wanted):
        return self.waits and is_wanted


def dispatcher_of(
    *operations, lanes=None, room=10, alone=None, most_crashed=5, run=at_once, connect=None,
    behind=lambda operations: False, ready=lambda alias: True,
):  # fmt: skip
    lanes = lanes or [next(lane for lane in lanes_of(one) if one.state in lane.names) for one in operations]
    room = Room(room)
    recorder = SimpleNamespace(held={}, is_behind=behind)
    threads = SimpleNamespace(
        claims=SimpleNamespace(run=run), records=SimpleNamespace(connect=connect), may_claim=ready
    )
    beside = recorder, most_crashed, Suspensions()
    return Dispatcher(Lanes(lanes), room, threads, alone or Alone(), *beside), room


async def test_no_more_is_claimed_than_there_is_room_to_start():
    operations = FakeOperations(ready=100)
    dispatcher, room = dispatcher_of(operations, room=7)
    assert await dispatcher.claim() == 7
    assert await dispatcher.claim() == 0
    assert operations.asked == [(7, Crashes.NONE)]
    assert len(room.begun) == 7


async def test_busy_model_does_not_keep_another_from_its_turn():
    busy, other = FakeOperations("app.busy", ready=10_000), FakeOperations("app.other", ready=1)
    dispatcher, room = dispatcher_of(busy, other, room=5)
    for _ in range(3):
        await dispatcher.claim()
        room.left = 5
    assert other.ready == 0


async def test_busy_model_among_very_many_that_are_idle_takes_no_second_turn_first():
    idle = [FakeOperations(f"app.idle{number}") for number in range(40)]
    busy, other = FakeOperations("app.busy", ready=10_000), FakeOperations("app.other")
    dispatcher, room = dispatcher_of(*idle, busy, *idle, other, room=FEW)
    await dispatcher.claim()
    other.ready = 1
    dispatcher.lanes.wake("app.other")
    room.left = 1
    await dispatcher.claim()
    assert other.ready == 0


async def test_lane_that_gave_less_than_asked_for_is_left_until_it_is_woken():
    operations = FakeOperations(ready=2)
    dispatcher, room = dispatcher_of(operations)
    assert await dispatcher.claim() == 2
    assert not dispatcher.hungry
    operations.ready = 1
    assert await dispatcher.claim() == 0
    assert len(operations.asked) == 1
    dispatcher.lanes.wake("app.model")
    assert dispatcher.lanes.woken.is_set()
    assert await dispatcher.claim() == 1


async def test_backlog_is_taken_in_whole_batches_once_it_has_shown_itself():
    operations = FakeOperations(ready=20_000)
    dispatcher, room = dispatcher_of(operations, room=2000)
    while operations.ready:
        await dispatcher.claim()
        room.left = 500
    asked = [limit for limit, _ in operations.asked]
    assert asked[: STREAK + 4] == [FEW] * STREAK + [200, 400, 500, 500]
    assert set(asked[STREAK + 4 :]) == {500}


async def test_burst_leaves_another_model_its_turn_after_a_few_rows():
    busy, other = FakeOperations("app.busy"), FakeOperations("app.other")
    dispatcher, _ = dispatcher_of(busy, other, room=100_000)
    for _ in range(20):
        busy.ready, other.ready = 450, 1
        dispatcher.lanes.wake()
        while busy.ready:
            await dispatcher.claim()
    assert max(limit for limit, _ in busy.asked) == FEW


async def test_batch_of_a_handler_is_claimed_as_a_whole():
    operations = FakeOperations(ready=500)
    operations.state = operations.graph.states["awaited"]
    lane = Lane(operations, [operations.state], is_async=True, batch=300)
    dispatcher, _ = dispatcher_of(lanes=[lane], room=500)
    assert await dispatcher.claim() == 300


async def test_claim_whose_answer_was_lost_is_handed_back_later():
    operations = FakeOperations(ready=5)
    broken = True

    async def run(function, *args, **kwargs):
        answer = function(*args, **kwargs)
        if broken:
            raise ConnectionError
        return answer

    dispatcher, room = dispatcher_of(operations, run=run)
    with pytest.raises(ConnectionError):
        await dispatcher.claim()
    assert dispatcher.hungry
    ((doubtful, token),) = dispatcher.doubts
    assert doubtful is operations
    with pytest.raises(ConnectionError):
        await dispatcher.settle_doubts(Outages())
    broken = False
    await dispatcher.settle_doubts(Outages())
    assert set(operations.released) == {token}
    assert dispatcher.doubts == []
    assert room.begun == []


def down(*args, **kwargs):
    raise OperationalError("down")


async def test_database_that_is_away_keeps_no_rows_of_another_from_being_claimed(monkeypatch):
    away, other = elsewhere(FakeOperations("app.away")), FakeOperations("app.other", ready=20)
    dispatcher, room = dispatcher_of(away, other)
    for name in ("claim", "release_token"):
        monkeypatch.setattr(away, name, down)
    for came in (10, 20):
        with pytest.raises(OperationalError, match="down"):
            await dispatcher.claim()
        assert len(room.begun) == came
        room.left = 10
    # Ambiguous claims are settled first.
    assert len(dispatcher.doubts) == 1
    monkeypatch.undo()
    away.ready = 3
    assert await dispatcher.claim() == 3
    assert (len(away.released), dispatcher.doubts) == (1, [])


async def test_nothing_is_claimed_once_it_is_stopped_but_doubts_are_settled():
    operations = FakeOperations(ready=5)
    dispatcher, _ = dispatcher_of(operations)
    dispatcher._suspended.suspend(Doubt(operations, 1), "no answer")
    dispatcher.stop()
    assert await dispatcher.claim() == 0
    assert (operations.asked, operations.released) == ([], [1])


async def test_rows_that_lost_a_lease_are_claimed_first_and_leave_others_the_room_that_they_do_not_need():
    operations = FakeOperations(ready=50, crashed=3)
    dispatcher, _ = dispatcher_of(operations)
    dispatcher.lanes[0].crashed = True
    assert await dispatcher.claim() == 10
    assert operations.asked == [(5, Crashes.FEW), (7, Crashes.NONE)]
    assert not dispatcher.lanes[0].crashed


async def test_one_process_holds_few_rows_that_lost_a_lease_at_a_time():
    operations, other = FakeOperations(crashed=20), FakeOperations("app.other", crashed=20, ready=1)
    dispatcher, room = dispatcher_of(operations, other, most_crashed=4)
    for lane in dispatcher.lanes:
        lane.crashed = True
    assert await dispatcher.claim() == 5, "and one that lost none"
    assert (operations.left[Crashes.FEW], other.left[Crashes.FEW], other.ready) == (16, 20, 0)
    assert await dispatcher.claim() == 0
    for claim in room.begun[:2]:
        del room.running[id(claim)]
    assert await dispatcher.claim() == 2
    assert (operations.left[Crashes.FEW], other.left[Crashes.FEW]) == (16, 18), "models take turns"
    assert all(lane.crashed for lane in dispatcher.lanes)


async def test_suspects_are_claimed_for_places_of_their_own_while_others_go_on():
    operations, alone = FakeOperations(ready=50, suspects=3), Alone(places=2)
    dispatcher, room = dispatcher_of(operations, alone=alone)
    dispatcher.lanes[0].suspect = True
    assert await dispatcher.claim() == 11
    assert (len(alone.begun), len(room.begun)) == (1, 10)
    assert await dispatcher.claim() == 1
    assert await dispatcher.claim() == 0
    assert operations.asked == [(1, Crashes.MANY), (10, Crashes.NONE), (1, Crashes.MANY)]
    assert dispatcher.lanes[0].more_suspects, "one is left"
    alone.places = 5
    assert await dispatcher.claim() == 1
    assert await dispatcher.claim() == 0
    assert not dispatcher.lanes[0].suspect
    assert not dispatcher.lanes[0].more_suspects


async def test_worker_is_not_idle_while_a_claim_is_on_its_way():
    hungry = []

    async def run(function, *args, **kwargs):
        # The rows are taken in the database, and nothing here knows of them yet.
        claims = function(*args, **kwargs)
        hungry.append(dispatcher.hungry)
        return claims

    dispatcher, _ = dispatcher_of(FakeOperations(ready=1), run=run)
    await dispatcher.claim()
    assert hungry == [True]
    assert not dispatcher.hungry


async def test_nothing_is_claimed_while_too_many_outcomes_wait_to_be_written_or_a_suspect_needs_the_room():
    operations, behind, alone = FakeOperations(ready=50, suspects=1), True, Alone(waits=True)
    dispatcher, _ = dispatcher_of(operations, behind=lambda operations: behind, alone=alone)
    assert await dispatcher.claim() == 0
    behind, dispatcher.lanes[0].suspect = False, True
    assert await dispatcher.claim() == 0
    assert operations.asked == []
    alone.waits = False
    assert await dispatcher.claim() == 10


async def test_nothing_is_claimed_before_it_could_be_recorded_and_renewed():
    operations, ready, asked = FakeOperations(ready=5), False, []

    async def connect(alias):
        asked.append(alias)

    dispatcher, _ = dispatcher_of(operations, ready=lambda alias: ready, connect=connect)
    assert await dispatcher.claim() == 0
    assert (operations.asked, asked, dispatcher.hungry) == ([], ["default"], True)
    ready = True
    assert await dispatcher.claim() == 5
    assert asked == ["default"]


async def test_claim_of_rows_that_lost_a_lease_which_fails_is_made_again(monkeypatch):
    operations = FakeOperations(crashed=2)
    dispatcher, room = dispatcher_of(operations)
    dispatcher.lanes[0].crashed = True
    monkeypatch.setattr(operations, "claim", down)
    with pytest.raises(OperationalError, match="down"):
        await dispatcher.claim()
    monkeypatch.undo()
    assert await dispatcher.claim() == 2
    assert len(room.begun) == 2


async def test_slices_that_were_claimed_before_a_locked_one_are_released(monkeypatch):
    operations = FakeOperations()
    operations.division.is_divided = True
    dispatcher, _ = dispatcher_of(operations)
    tokens = []

    def claim(*args, token, **kwargs):
        tokens.append(token)
        raise lock_timeout()

    monkeypatch.setattr(operations, "claim", claim)
    assert await dispatcher.claim() == 0
    monkeypatch.undo()
    assert await dispatcher.claim() == 0
    assert operations.released == tokens
    assert len(tokens) == 1


async def test_locked_model_keeps_no_rows_of_another_from_being_claimed(monkeypatch):
    locked, other = FakeOperations("app.locked"), FakeOperations("app.other", ready=30)
    dispatcher, room = dispatcher_of(locked, other)
    tried = []

    def claim(*args, **kwargs):
        tried.append(args)
        raise lock_timeout()

    monkeypatch.setattr(locked, "claim", claim)
    for _ in range(3):
        assert await dispatcher.claim() == 10
        room.left = 10
    # It is left alone for a while, and nothing is in doubt: what waited in vain did nothing.
    assert (len(tried), dispatcher.doubts) == (1, [])
    monkeypatch.undo()
    locked.ready = 3
    locked.locks._keep({})
    assert await dispatcher.claim() == 3


async def test_lanes_with_suspects_take_turns():
    first, second, alone = FakeOperations(suspects=5), FakeOperations(suspects=5), Alone(places=1)
    dispatcher, _ = dispatcher_of(first, second, alone=alone, room=0)
    for lane in dispatcher.lanes:
        lane.suspect = True
    for places in (1, 2, 3, 4):
        alone.places = places
        dispatcher.lanes.woken.clear()
        await dispatcher.claim()
        assert dispatcher.lanes.woken.is_set(), "more may be left"
    assert [claim.operations for claim in alone.begun] == [first, second, first, second]
