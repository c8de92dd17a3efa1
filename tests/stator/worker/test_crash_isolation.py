"""Objects that lost many leases: in processes of their own, or in this one once nothing else runs."""

import asyncio
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from stator.graph.outcomes import Released
from stator.worker import crash_isolation as module
from stator.worker.crash_isolation import AT_ONCE, GRACE, PATIENCE, PAUSES, InProcessIsolation, ProcessIsolation
from stator.worker.isolated.messages import NotStarted, ProcessFailed
from tests.stator.worker.fakes import FakeClaim, FakeOperations, on_loop, until


class Within:
    """A process that runs so many attempts."""

    def __init__(self):
        self.runs = 0
        self.alone = InProcessIsolation(self.begin, lambda: not self.runs)

    def begin(self, claims):
        self.runs += len(claims)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_others_wait_for_the_process_to_become_empty_and_then_for_the_object(clock):
    within = Within()
    alone, within.runs = within.alone, 3
    assert not alone.needs_room(False)
    assert alone.needs_room(True)
    assert not alone.has_room()
    within.runs = 0
    assert alone.has_room()
    alone.begin([FakeClaim(FakeOperations())])
    assert alone.needs_room(False)
    assert not alone.has_room()
    within.runs = 0
    assert not alone.needs_room(False)


@pytest.mark.parametrize("empties", [False, True], ids=["never empty", "the object runs for long"])
def test_others_never_wait_longer_than_they_go_on_before_and_after(clock, empties):
    within = Within()
    alone, within.runs, waited = within.alone, 1, []
    for _ in range(60):
        waited.append(alone.needs_room(True))
        if empties and alone.has_room():
            alone.begin([FakeClaim(FakeOperations())])
        within.runs = max(within.runs, 1) if not empties or within.runs else 0
        clock.now += PATIENCE / 5
    turns = "".join("w" if waits else "." for waits in waited)
    assert "w" * 6 not in turns
    assert "." * 5 in turns


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


@on_loop
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
    await apart.alone.close()
    assert all(process.killed for process in processes.made)


@on_loop
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
    claim.progress, claim.note_extension = None, lambda seconds, now: noted.append(seconds)
    process = SimpleNamespace(ask=lambda request: next(answers), answer=lambda: next(answers))
    assert module._attempt(process, claim, {}) == RECORDED
    assert noted == [100.0]


@on_loop
async def test_object_that_was_not_begun_is_handed_back(processes):
    apart = Apart()
    claim = await apart.begin()
    processes.made[0].answers.put({"ended": "not begun"})
    await until(lambda: apart.ended == [(claim, Released())])
    assert apart.told == []


@on_loop
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


@on_loop
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


@on_loop
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


@on_loop
async def test_of_an_object_that_ended_its_process_nothing_is_recorded(processes):
    apart = Apart()
    claim = await apart.begin()
    processes.made[0].kill()
    await until(lambda: apart.told)
    assert (apart.told, apart.ended, apart.alone.running) == ([(claim, {})], [], {})
    await apart.begin()
    assert len(processes.made) == 2
