"""How long the scheduling loop sleeps between two looks, and which duties a pass has."""

import asyncio
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from stator.capabilities import POSTGRESQL, SQLITE
from stator.conf import Settings
from stator.db.division import Undivided
from stator.db.locks import FIRST_SECONDS
from stator.db.probe import Work
from stator.scopes import Scope
from stator.worker import duties
from stator.worker import scheduler as module
from stator.worker.dispatcher import Lane, Lanes
from stator.worker.duties import MARK_READY, PRUNE, REAP, Duty, When, duties_of, perform
from stator.worker.outage import Outages
from stator.worker.scheduler import BUSY_LOOK, FIRST_LOOK, Scheduler
from tests.sizes import PATIENCE
from tests.stator.worker.fakes import FakeOperations, at_once, elsewhere, lock_timeout, node_away

POLL_INTERVAL = 20.0
PASS = duties_of(When.PASS)


class Looking(Scheduler):
    """A poll whose answers the test gives."""

    def __init__(self):
        self.operations = FakeOperations()
        super().__init__([self.operations], Lanes(()), Settings(POLL_INTERVAL=POLL_INTERVAL), at_once)
        self.found = Work()

    def look(self, outages):
        return {self.operations: self.found}

    async def perform_pass(self, aliases, outages):
        self.passes += 1


@pytest.fixture
def pauses(monkeypatch):
    """How long it would have slept."""
    asked = []

    async def passes_at_once(awaitable, timeout):
        awaitable.close()
        asked.append(timeout)
        raise TimeoutError

    # In the module alone: the tests themselves run under a time limit.
    given = SimpleNamespace(wait_for=passes_at_once, Event=asyncio.Event)
    monkeypatch.setattr(module, "asyncio", given)
    return asked


async def idle(scheduler, pauses):
    """Look until the pauses grow no more; the last."""
    for _ in range(12):
        await scheduler.tick()
        await scheduler.rest()
    return pauses[-1]


async def test_pauses_of_an_idle_worker_double_up_to_the_poll_interval(pauses):
    scheduler = Looking()
    assert await idle(scheduler, pauses) > 0.8 * POLL_INTERVAL
    assert pauses[0] <= 1.2 * FIRST_LOOK
    assert max(pauses) <= 1.2 * POLL_INTERVAL
    scheduler.soon()
    await scheduler.tick()
    await scheduler.rest()
    assert pauses[-1] <= 1.2 * FIRST_LOOK


@pytest.mark.parametrize(("nothing_else", "pause"), [(True, 0), (False, FIRST_LOOK)])
async def test_looks_at_once_where_nothing_else_is_left_to_do(monkeypatch, nothing_else, pause):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(wait_for=asyncio.wait_for, Event=asyncio.Event, sleep=sleep))
    scheduler = Looking()
    resting = asyncio.ensure_future(scheduler.rest())
    await asyncio.sleep(0)
    scheduler.soon(at_once=nothing_else)
    await resting
    assert slept == [pause]


async def test_sleeps_exactly_until_the_next_row_comes_due(pauses):
    scheduler = Looking()
    await idle(scheduler, pauses)
    for next_due in (7.0, 0.5):
        scheduler.found = Work(next_due=next_due)
        await scheduler.tick()
        await scheduler.rest()
        assert next_due - BUSY_LOOK < pauses[-1] <= next_due


RARE = {when.value: Duty("rare", lambda *models, limit: 0, every=3, when=when) for when in (When.PASS, When.TOGETHER)}
RARE["prune"] = PRUNE


@pytest.mark.parametrize("rare", RARE.values(), ids=RARE)
async def test_rarer_duty_is_done_in_the_first_pass_and_then_in_each_so_many(monkeypatch, rare):
    done = []
    monkeypatch.setattr(module, "send_scheduled", lambda scheduler, schemas: None)
    monkeypatch.setattr(module, "duties_of", lambda asked: [rare] if asked is rare.when and rare is not PRUNE else [])
    monkeypatch.setattr(module, "perform", lambda duty, *models, stopped: done.append((scheduler.passes, duty)))
    scheduler = Scheduler([FakeOperations()], Lanes(()), Settings(), at_once)
    for _ in range(2 * rare.every + 1):
        await scheduler.perform_pass([Scope("default")], Outages())
    assert [number for number, duty in done if duty is rare] == [0, rare.every, 2 * rare.every]


class Databases:
    """Two of them, of which one may be away, and what is done in them."""

    def __init__(self, monkeypatch):
        self.away = self.locked = None
        self.operations = [elsewhere(FakeOperations("app.a")), FakeOperations("app.b")]
        self.lanes = Lanes(Lane(operations, [], False, 1) for operations in self.operations)
        self.scheduler = Scheduler(self.operations, self.lanes, Settings(), at_once)
        self.done, self.scheduled = [], 0
        monkeypatch.setattr(module, "look", self.look)
        monkeypatch.setattr(module, "perform", self.perform)
        monkeypatch.setattr(module, "send_scheduled", self.schedule)

    def look(self, *group, watermark):
        self.reach(group)
        return {operations: Work(ready=True) for operations in group}

    def perform(self, duty, *models, stopped):
        self.reach(models)
        if self.locked == (duty, models[0].label):
            raise lock_timeout()
        self.done.append((models[0].alias, duty))

    def schedule(self, scheduler, schemas):
        self.scheduled += 1

    def reach(self, models):
        if models[0].alias == self.away:
            raise OperationalError("away")

    async def tick(self):
        """The labels of models that became hungry, and what was done in each database."""
        self.done.clear()
        for lane in self.lanes:
            lane.hungry = False
        self.lanes.woken.clear()
        try:
            await self.scheduler.tick()
        except OperationalError:
            assert self.away
        hungry = [lane.operations.label for lane in self.lanes if lane.hungry]
        assert self.lanes.woken.is_set() == bool(hungry)
        return hungry, {alias: [duty for at, duty in self.done if at == alias] for alias in ("other", "default")}


async def test_database_that_is_away_holds_up_no_poll_and_no_duty_of_another(monkeypatch):
    databases = Databases(monkeypatch)
    databases.away = "other"
    hungry, done = await databases.tick()
    assert hungry == ["app.b"]
    assert done["other"] == []
    needed = {duty for duty in PASS if duty.needed(FakeOperations())}
    assert {*duties_of(When.START), *needed, *duties_of(When.TOGETHER), PRUNE} <= set(done["default"])
    # A pass is made again where it was not made to its end, and only there.
    assert await databases.tick() == (["app.b"], {"other": [], "default": []})
    assert databases.scheduled == 1
    databases.away = None
    hungry, done = await databases.tick()
    assert hungry == ["app.a", "app.b"]
    assert {*duties_of(When.START), *needed, *duties_of(When.TOGETHER), PRUNE} <= set(done["other"])
    assert done["default"] == []


async def test_while_a_node_is_away_there_may_be_work_on_the_others(monkeypatch):
    over, on, other = models = [FakeOperations(f"app.{name}") for name in ("over", "on", "other")]
    over.division.spans = True
    lanes = Lanes(Lane(each, [], False, 1) for each in models)
    scheduler, done = Scheduler(models, lanes, Settings(), at_once), []
    for lane in lanes:
        lane.hungry = False

    def look(*group, watermark):
        if {over, on} & {*group}:
            raise node_away()
        return {each: Work(ready=True) for each in group}

    monkeypatch.setattr(module, "look", look)
    monkeypatch.setattr(module, "send_scheduled", lambda scheduler, schemas: None)
    monkeypatch.setattr(module, "perform", lambda duty, *models, stopped: done.append((duty, models)))
    await scheduler.tick()
    assert [(lane.hungry, lane.crashed, lane.suspect) for lane in lanes] == [
        (True, True, False), (False, False, False), (True, False, False)
    ]  # fmt: skip
    assert {(MARK_READY, (over,)), (REAP, (over,))} <= {*done}
    assert not any(duty in (MARK_READY, REAP) and over not in models for duty, models in done)
    # All of it is asked again in a moment, and no sooner.
    assert 0 < over.locks.remaining(module.LOOK) <= FIRST_SECONDS


@pytest.mark.parametrize(("is_over_nodes", "part"), [(False, 0.2), (True, 0.04)])
async def test_polls_take_a_small_part_of_the_time_and_less_if_they_ask_nodes(monkeypatch, pauses, is_over_nodes, part):
    operations, now = FakeOperations("app.a"), 0.0
    operations.division.spans = is_over_nodes

    def look(*group, watermark):
        nonlocal now
        now += 0.5
        return {operations: Work()}

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(module, "look", look)
    scheduler = Scheduler([operations], Lanes([]), Settings(REAP_INTERVAL=600), at_once)
    scheduler.passes = 1
    monkeypatch.setattr(scheduler, "perform_pass", passed)
    await scheduler.tick()
    await scheduler.rest()
    assert 0.5 / (0.5 + pauses[-1]) == pytest.approx(part)


async def passed(scopes, outages):
    """A pass with nothing to do."""


async def test_duty_that_waited_in_vain_for_a_lock_is_done_at_the_next_look(monkeypatch):
    databases = Databases(monkeypatch)
    databases.locked = PASS[0], "app.b"
    assert PASS[0] not in (await databases.tick())[1]["default"]
    # The model is left alone for a while.
    assert (await databases.tick())[1] == {"other": [], "default": []}
    databases.locked = None
    databases.operations[1].locks._keep({})
    assert (await databases.tick())[1] == {"other": [], "default": [PASS[0]]}


async def test_receiver_that_does_not_return_holds_up_no_pass_and_is_not_called_again_meanwhile(monkeypatch):
    databases, called, go_on = Databases(monkeypatch), [], asyncio.Event()
    monkeypatch.setattr(module, "PREPARED_WITHIN", 0.01)

    async def prepare(function, scheduler, schemas):
        called.append(function)
        await go_on.wait()
        raise ValueError("no such setting")

    databases.scheduler._prepare = prepare
    for _ in range(2):
        await databases.scheduler.perform_pass([Scope("default")], Outages())
    assert (len(called), databases.scheduler.passes) == (1, 2)
    go_on.set()
    monkeypatch.setattr(module, "PREPARED_WITHIN", PATIENCE)
    with pytest.raises(ValueError, match="no such setting"):
        await databases.scheduler.perform_pass([Scope("default")], Outages())
    with pytest.raises(ValueError, match="no such setting"):
        await databases.scheduler.perform_pass([Scope("default")], Outages())
    assert len(called) == 2


# How a duty is repeated until nothing is left


def model_on(capabilities):
    model = SimpleNamespace(capabilities=capabilities, scope=Scope("default"))
    model.parts = Undivided(model).parts
    return model


def parts(*counts):
    """A chore that does so many rows in each of its parts."""
    left = list(counts)
    return left, lambda operations, limit: left.pop(0)


@pytest.fixture
def rests(monkeypatch):
    """The seconds of each pause; a part takes 0.1 s, and the last one 9 s."""
    clock, found = iter([10.0, 10.1, 20.0, 29.0, 30.0]), []
    monkeypatch.setattr(duties, "monotonic", lambda: next(clock))
    monkeypatch.setattr(duties, "sleep", found.append)
    return found


@pytest.mark.parametrize(
    ("capabilities", "gives_way", "rested"),
    [(SQLITE, True, [pytest.approx(0.1), duties.MAX_REST]), (POSTGRESQL, True, []), (SQLITE, False, [])],
)
def test_others_can_write_between_the_parts_where_there_is_one_writer(rests, capabilities, gives_way, rested):
    left, chore = parts(2, 2, 1)
    perform(Duty("rename", chore, limit=2, gives_way=gives_way), model_on(capabilities), stopped=lambda: False)
    assert (left, rests) == ([], rested)


def test_no_part_is_begun_after_a_stop():
    left, chore = parts(2, 2, 1)
    perform(Duty("rename", chore, limit=2), model_on(POSTGRESQL), stopped=lambda: len(left) < 2)
    assert left == [1]
