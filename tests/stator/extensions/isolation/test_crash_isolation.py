"""Objects that lost many leases: in processes of their own."""

import asyncio
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from stator.db.interface import Claim, new_token, new_worker_id
from stator.exceptions import NotBegun
from stator.extensions.isolation import crashes as module
from stator.extensions.isolation.attempts import adopt
from stator.extensions.isolation.crashes import AT_ONCE, GRACE, PAUSES, ProcessIsolation
from stator.extensions.isolation.messages import NotStarted, ProcessFailed
from stator.graph.outcomes import Released
from tests.stator.making import ago, change, operations_of, put, row
from tests.stator.worker.fakes import FakeClaim, FakeOperations, until
from tests.testapp.basic import Step


class FakeProcess:
    """In place of a process: answers when it is told to."""

    made, comes_up = [], True

    def __init__(self, module, *, grace):
        self.asked, self.is_usable, self.idle_since, self.killed = [], True, 0.0, False
        self.answers, self.stacks = SimpleQueue(), ""

    def start(self, options):
        if not self.comes_up:
            raise NotStarted("it ended with 1")
        self.made.append(self)

    def attempt(self, claim, request):
        self.asked.append(claim)
        answer = self.answers.get()
        if answer is None:
            raise ProcessFailed("it ended", -9)
        return answer

    def retire(self):
        self.kill()

    def end(self):
        self.kill()

    def kill(self):
        self.killed, self.is_usable = True, False
        self.answers.put(None)


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(module, "IsolatedProcess", FakeProcess)
    monkeypatch.setattr(module, "_attempt", FakeProcess.attempt)
    monkeypatch.setattr(FakeProcess, "made", [])
    monkeypatch.setattr(FakeProcess, "comes_up", True)
    return FakeProcess


class Apart:
    """A worker that attempts objects in processes."""

    def __init__(self):
        self.within, self.ended, self.told, self.woken = [], [], [], []
        self.alone = ProcessIsolation(
            self.within.extend, lambda: not self.within, {}, lambda *ended: self.ended.append(ended),
            lambda *told: self.told.append(told), lambda: self.woken.append(True),
        )  # fmt: skip

    async def begin(self):
        claim = FakeClaim(FakeOperations())
        self.alone.begin([claim])
        await until(lambda: claim in self.begun())
        return claim

    def begun(self):
        asked = [claim for process in FakeProcess.made for claim in process.asked]
        return [*asked, *self.within, *(claim for claim, _ in self.ended)]


RECORDED = {"ended": "recorded", "moved": ["done"], "failed": 0, "lost": 0}


async def test_each_object_has_a_process_of_its_own_which_takes_the_next_when_it_is_done(processes):
    apart = Apart()
    claims = [await apart.begin() for _ in range(AT_ONCE)]
    assert [process.asked for process in processes.made] == [[claim] for claim in claims]
    assert not apart.alone.has_room(make=True)
    assert not apart.alone.needs_room(True), "others go on"
    processes.made[0].answers.put(RECORDED)
    await until(lambda: apart.told == [(claims[0], RECORDED)])
    assert apart.alone.has_room()
    third = await apart.begin()
    assert processes.made[0].asked == [claims[0], third]
    assert set(apart.alone.running) == {id(claims[1]), id(third)}
    assert len(processes.made) == AT_ONCE
    # One that has nothing left to attempt is kept for a while.
    processes.made[0].answers.put(RECORDED)
    await until(apart.alone.has_room)
    apart.alone.sweep()
    assert not processes.made[0].killed
    processes.made[0].idle_since -= 2 * module.IDLE_FOR
    apart.alone.sweep()
    await until(lambda: processes.made[0].killed)
    await apart.alone.close()
    assert all(process.killed for process in processes.made)


async def test_idle_process_that_does_not_end_is_killed_with_its_worker(processes, monkeypatch):
    monkeypatch.setattr(module, "CLOSING", 0.05)
    monkeypatch.setattr(processes, "retire", lambda process: process.answers.get())
    apart = Apart()
    claim = await apart.begin()
    [process] = processes.made
    process.answers.put(RECORDED)
    await until(lambda: apart.told == [(claim, RECORDED)])
    await apart.alone.close()
    assert process.killed


def test_extension_of_an_attempt_in_a_process_counts_in_the_worker_too():
    claim, noted, answers = FakeClaim(FakeOperations()), [], iter([{"extended": 100.0}, RECORDED])
    claim.take_news, claim.note_extension = print, lambda seconds, now: noted.append(seconds)
    process = SimpleNamespace(ask=lambda request: next(answers), answer=lambda: next(answers))
    assert module._attempt(process, claim, {}) == RECORDED
    assert noted == [100.0]


async def test_object_that_was_not_begun_is_handed_back(processes):
    apart = Apart()
    claim = await apart.begin()
    processes.made[0].answers.put({"ended": "not begun"})
    await until(lambda: apart.ended == [(claim, Released())])
    assert apart.told == []


async def test_where_no_process_comes_up_objects_wait_for_this_one_to_be_empty(processes, monkeypatch, caplog):
    monkeypatch.setattr(processes, "comes_up", False)
    apart, tried = Apart(), []
    while apart.alone._works:
        tried.append(await apart.begin())
        assert not (apart.alone._works and apart.alone.has_room(make=True)), "not at once again"
        apart.alone._starts_at = 0.0
    assert apart.ended == [(claim, Released()) for claim in tried]
    assert [record.retry_in for record in caplog.records] == [*PAUSES, None]
    assert apart.alone.has_room()
    claim = await apart.begin()
    assert apart.within == [claim]
    assert apart.alone.needs_room(False)


async def test_object_is_claimed_once_a_process_waits_for_it(processes):
    apart = Apart()
    assert not apart.alone.has_room()
    assert not processes.made
    assert not apart.alone.has_room(make=True)
    assert not apart.alone.has_room(make=True)
    await until(lambda: apart.woken)
    [process] = processes.made
    assert apart.alone.has_room()
    apart.alone.begin([FakeClaim(FakeOperations())])
    assert not apart.alone.has_room(make=True), "the only process is taken"
    await until(lambda: process.asked and len(apart.woken) == 2)
    assert len(processes.made) == 2
    await apart.alone.close()
    assert all(process.killed for process in processes.made)


async def test_attempt_is_ended_before_its_row_is_handed_to_others(processes):
    apart = Apart()
    late, ended = await apart.begin(), await apart.begin()
    late.deadline = 0.0
    apart.alone.sweep()
    assert (apart.ended, processes.made[0].killed) == ([(late, Released())], True)
    apart.alone.cancel_ended({id(ended), 12345})
    apart.alone.sweep()
    assert not processes.made[1].killed, "its process may be about to say so"
    apart.alone._ended_at[id(ended)] -= 2 * GRACE
    apart.alone.sweep()
    assert processes.made[1].killed
    await asyncio.sleep(0)
    assert (len(apart.ended), apart.told) == (2, [])


async def test_of_an_object_that_ended_its_process_nothing_is_recorded(processes):
    apart = Apart()
    claim = await apart.begin()
    processes.made[0].kill()
    await until(lambda: apart.told)
    assert (apart.told, apart.ended, apart.alone.running) == ([(claim, {})], [], {})
    await apart.begin()
    assert len(processes.made) == 2


@pytest.mark.django_db(transaction=True)
def test_claim_of_another_version_is_not_adopted():
    """The files were replaced under a running worker, which starts a process for the object."""
    token = new_token(new_worker_id())
    instance = put(Step)
    change(instance, state="newer", state_ready=False, state_claim=token, state_locked_until=ago(-60))
    with pytest.raises(NotBegun, match="has no state 'newer' in this process"):
        adopt(Claim, operations_of(Step), token)
    assert row(instance).state_claim == token
