"""Outcomes on their way to the database: batches, outages, lost leases, and rows that somebody has locked."""

import asyncio
from collections import Counter

import pytest
from django.db import DatabaseError, OperationalError

from stator.db.interface import Written
from stator.db.suspensions import Suspensions
from stator.graph.outcomes import Moved, Released
from stator.worker import recorder as module
from stator.worker.executor import Attempted
from stator.worker.recorder import Recorder
from tests.stator.worker.fakes import FakeClaim, FakeOperations, WorkGraph, elsewhere, lock_timeout, until

DONE = Moved(WorkGraph.done)


class Writing:
    """A recorder whose database answers as it is told."""

    def __init__(self, monkeypatch, size=100):
        self.batches, self.answers = [], []
        self.told, self.room = Counter(), 0
        self.recorder = Recorder(self.run, size, Suspensions(), self.leave_room, monitors=[self])
        monkeypatch.setattr(module, "record", self.write)

    def leave_room(self):
        self.room += 1

    def ended(self, ended):
        self.told["ended"] += len(ended)

    def took(self, what, seconds):
        self.told[what] += 1

    async def run(self, function, *args, **kwargs):
        return function(*args, **kwargs)

    def write(self, operations, batch, again=False):
        self.batches.append((batch.ended, again))
        if self.answers and (answer := self.answers.pop(0)) is not None:
            return self.give(answer)
        return batch.accepted()

    def give(self, answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    def add(self, *outcomes, operations=None):
        claims = [FakeClaim(operations or FakeOperations()) for _ in outcomes]
        for claim, outcome in zip(claims, outcomes, strict=True):
            self.recorder.add(claim, outcome)
        return claims


@pytest.fixture
def writing(monkeypatch):
    return lambda size=100: Writing(monkeypatch, size)


async def test_what_came_in_is_written_in_batches_of_a_kind(writing):
    writing, operations = writing(size=2), FakeOperations()
    writing.add(*[DONE] * 5, *[Released()] * 2, operations=operations)
    assert len(writing.recorder.held) == 7
    assert await writing.recorder.flush() == 7
    assert sorted(len(ended) for ended, _ in writing.batches) == [1, 2, 2, 2]
    assert writing.recorder.held == {}
    assert writing.recorder.handled == {"app.model": 5}
    assert writing.recorder.moved == {("app.model", "done"): 5}


async def test_each_end_of_an_attempt_leaves_room_for_the_next(writing):
    writing = writing()
    writing.add(DONE, Released())
    writing.recorder.note_recorded(FakeOperations(), Attempted([], [(FakeClaim(FakeOperations()), DONE)]))
    assert (writing.room, writing.told["ended"]) == (3, 1)


async def test_outage_keeps_outcomes_and_the_next_time_repeats_those_in_doubt_with_what_came_meanwhile(writing):
    writing, operations = writing(), FakeOperations()
    (claim,) = writing.add(DONE, operations=operations)
    writing.answers = [OperationalError("server closed the connection unexpectedly")]
    with pytest.raises(OperationalError):
        await writing.recorder.flush()
    assert writing.recorder.held == {id(claim): claim}
    assert writing.recorder.came.is_set()
    writing.add(DONE, DONE, operations=operations)
    assert await writing.recorder.flush() == 3
    assert sorted((len(ended), again) for ended, again in writing.batches) == [(1, False), (1, True), (2, False)]
    assert not writing.recorder.held


async def test_outcome_that_cannot_be_written_in_any_form_is_given_up(writing):
    writing = writing()
    [claim] = writing.add(DONE)
    writing.answers = [DatabaseError("no")] * 2
    await writing.recorder.flush()
    assert writing.recorder.held == {}
    assert len(writing.batches) == 2
    assert claim.instance is None


async def test_deferred_outcome_stays_held_and_is_written_later(writing, monkeypatch):
    monkeypatch.setattr(module, "DEFERRED_FOR", 0.0)
    writing = writing()
    (claim,) = writing.add(DONE)
    writing.answers = [Written(deferred=[(claim, DONE)])]
    assert await writing.recorder.flush() == 0
    assert writing.recorder.held == {id(claim): claim}
    await until(writing.recorder.came.is_set)
    assert await writing.recorder.flush() == 1
    assert writing.recorder.held == {}
    assert writing.told == {"ended": 1, "record": 2}


@pytest.mark.parametrize(("lease", "lost"), [(60.0, 0), (0.0, 1)], ids=["ended by somebody", "ran out"])
async def test_claims_that_have_ended_are_let_go_and_leases_that_ran_out_are_counted(writing, lease, lost):
    writing = writing()
    (claim,) = writing.add(DONE)
    claim.deadline, claim.lease = claim.claimed + 0.8 * lease, lease
    writing.answers = [Written(lost=[claim])]
    await writing.recorder.flush()
    assert (writing.recorder.lost, writing.recorder.held) == (lost, {})


async def test_database_that_is_away_keeps_no_outcome_of_another_from_being_written(writing):
    writing = writing(size=2)
    away = writing.add(DONE, DONE, DONE, operations=elsewhere(FakeOperations()))
    writing.add(DONE, DONE, operations=FakeOperations())
    writing.answers = [OperationalError("gone")]
    with pytest.raises(OperationalError):
        await writing.recorder.flush()
    # Of the one that is away no second batch is tried.
    assert [ended[0][0].operations.alias for ended, _ in writing.batches] == ["other", "default"]
    assert list(writing.recorder.held.values()) == away
    assert writing.recorder.came.is_set()

    assert await writing.recorder.flush() == 3
    assert not writing.recorder.held
    assert [again for _, again in writing.batches] == [False, False, True, False]


async def test_outcomes_of_a_locked_model_are_written_soon_after_without_being_asked_for(writing):
    writing, locked = writing(), FakeOperations()
    writing.answers = [lock_timeout()]
    writing.add(DONE, operations=locked)
    await writing.recorder.flush()
    await asyncio.wait_for(writing.recorder.came.wait(), 10)
    assert await writing.recorder.flush() == 1
    assert not writing.recorder.held
    assert not writing.recorder.is_behind(locked)


async def test_outcomes_of_another_database_or_a_locked_model_keep_nothing_from_being_claimed(writing):
    away, locked, other = elsewhere(FakeOperations()), FakeOperations("app.locked"), FakeOperations("app.other")
    writing = writing(size=1)
    writing.add(*[DONE] * module.MAX_BATCHES, operations=away)
    assert writing.recorder.is_behind(away)
    assert not writing.recorder.is_behind(other)
    writing.add(*[DONE] * 2 * module.MAX_BATCHES, operations=locked)
    assert writing.recorder.is_behind(other)
    writing.answers = [None] * module.MAX_BATCHES + [lock_timeout()]
    await writing.recorder.flush()
    assert not writing.recorder.is_behind(other)


async def test_is_behind_while_several_batches_wait_or_are_being_written(writing):
    writing = writing(size=2)
    writing.add(*[DONE] * (2 * module.MAX_BATCHES - 1))
    assert not writing.recorder.is_behind(FakeOperations())
    writing.add(DONE)
    assert writing.recorder.is_behind(FakeOperations())

    writing.answers = [None, OperationalError("gone")]
    with pytest.raises(OperationalError):
        await writing.recorder.flush()
    assert not writing.recorder.is_behind(FakeOperations())
    writing.add(DONE, DONE)
    assert writing.recorder.is_behind(FakeOperations())
    await writing.recorder.flush()
    assert not writing.recorder.is_behind(FakeOperations())


async def test_claims_that_cannot_be_recorded_are_told_by_database_until_they_can(writing):
    writing = writing()
    writing.answers = [OperationalError("too many connections")]
    held = writing.add(DONE, DONE)
    assert writing.recorder.unrecorded() == {}
    with pytest.raises(OperationalError):
        await writing.recorder.flush()
    assert writing.recorder.unrecorded() == {"default": held}
    writing.recorder.forget({id(held[0])})
    assert writing.recorder.unrecorded() == {"default": held[1:]}
    await writing.recorder.flush()
    assert writing.recorder.unrecorded() == {}
