"""The seams of workers: around calls, beside the loops, and duties. Every registered entry keeps what these promise.

The other seams have theirs in ``tests/stator/db``, and ``tests/budget`` has an extension of a third party.
"""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
from django.utils.module_loading import import_string

from stator import batteries
from stator.conf import Settings
from stator.extensions.related.waits import parking
from stator.extensions.shadow.models import ShadowLine
from stator.models import Depth, StatorModel, Worker
from stator.rows.meta import managed
from stator.seams import Extension
from stator.worker import around, scheduler
from stator.worker import worker as worker_module
from stator.worker.duties import CORE, MARK_READY, PRUNE, REAP, Duty, When, duties_of, perform
from stator.worker.parts import WorkerPart
from stator.worker.serving import Serving
from tests.stator.making import LEASED, ago, change, operations_of, put, raw
from tests.stator.running import work
from tests.testapp.basic import Deed, Rest, Step
from tests.testapp.power import Crate, Order, Transfer
from tests.testapp.shadowed import Flyer
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.django_db(transaction=True)

# Settings with which an extension does something around calls.
WANTED = {
    "tracing": {"TRACING": True},  # stator.extensions.tracing
    "third party": {},
}


class ThirdParty:
    """Counts what is asked of it."""

    def __init__(self):
        self.told = Counter()

    def begin(self, claims):
        self.told["begun"] += len(claims)
        return len(claims)

    def end(self, claims, begun, ended, error=None):
        assert begun == len(claims)
        self.told["ended"] += begun

    def given_up(self, claim, outcome):
        self.told["given up"] += 1


# Around calls


def test_nothing_is_around_calls_by_default_and_each_that_can_be_is_tried_here():
    assert around.calls_by_state([operations_of(model) for model in managed(StatorModel.subclasses)]) == {}
    made = {each.name for each in batteries.extensions() if each.around(Settings(TRACING=True), "testapp.deed", None)}
    assert {*made, "third party"} == {*WANTED}


@pytest.mark.parametrize("name", WANTED)
def test_what_is_around_calls_changes_no_outcome_and_ends_as_often_as_it_begins(name, settings, deeds, monkeypatch):
    deeds |= {"move": lambda instance: "done", "fail": lambda instance: 1 / 0, "stay": lambda instance: None}
    bare, third = outcomes(), ThirdParty()
    settings.STATOR = {**getattr(settings, "STATOR", {}), **WANTED[name]}
    made = [*batteries.extensions(), Extension(name="third", around=lambda settings, label, state: third)]
    monkeypatch.setattr(around, "extensions", lambda: made)
    assert outcomes() == bare
    # Each object of a batch that failed once more, by itself.
    assert third.told == {"begun": 6 + 2 + 3 + 3, "ended": 6 + 2 + 3 + 3}


def outcomes():
    """Attempt objects in threads, on the loop, in transactions and in batches; return what became of each."""
    for model in (Deed, Transfer, Crate):
        raw(model).delete()
    for deed in ("move", "fail", "stay"):
        Deed.objects.create(deed=deed)
        Deed.objects.create(deed=deed, state="awaited")
    for deed in ("", "raise"):
        Transfer.objects.create(deed=deed)
    for deed in ("", "", "raise"):
        Crate.objects.create(deed=deed)
    work(Deed, Transfer, Crate)
    told = ("deed", "state", "state_attempts", "state_failures", "state_crashes", "state_claim")
    return [sorted(raw(model).values_list(*told), key=str) for model in (Deed, Transfer, Crate)]


# Beside the loops

PARTS = [path for each in batteries.extensions() for path in each.parts]


def fail(*given, **named):
    raise ValueError("a fault of the extension")


@pytest.mark.parametrize("fault", ["none", "start", "beat", "stop", "duty"])
def test_parts_start_once_are_looked_after_and_stop_in_the_reverse_order_however_a_worker_ends(monkeypatch, fault):
    """An error of an extension beside the handlers ends the worker, which leaves no row claimed."""
    told = []

    def noted(name, what, call):
        told.append((name, what))
        return call()

    def parts_of(worker):
        made = [(path, part) for path in PARTS for part in import_string(path)(worker)]
        failing = {fault: fail} if fault in ("start", "beat", "stop") else {}
        for name, part in [*made, ("third party", WorkerPart(**{"beat": dict, **failing}))]:
            calls = {what: partial(noted, name, what, getattr(part, what)) for what in ("start", "beat", "stop")}
            yield replace(part, **calls)

    monkeypatch.setattr(worker_module, "parts_of", lambda worker: list(parts_of(worker)))
    if fault == "duty":
        duties = {When.PASS: [Duty("third party", fail)]}
        monkeypatch.setattr(scheduler, "duties_of", lambda when: duties.get(when, []))
    put(Step, state="slow")
    with nullcontext() if fault == "none" else pytest.raises(ValueError, match="a fault of the extension"):
        work(Step)
    assert not raw(Step).exclude(state_claim=None).exists()
    started, stopped = ([name for name, what in told if what == wanted] for wanted in ("start", "stop"))
    assert {*started} >= {"third party", "stator.extensions.stats.gathered.parts"}
    assert len({*started}) == len(started)
    # What failed to start has nothing to stop.
    assert stopped == started[::-1][fault == "start" :]
    assert told[: len(started)] == [(name, "start") for name in started]
    assert told[-len(stopped) :] == [(name, "stop") for name in stopped]
    assert (("third party", "beat") in told) == (fault != "start")


def test_worker_within_a_program_attempts_all_objects_itself():
    worker = worker_module.Worker([Step], Settings())
    worker.serving = Serving(worker)
    assert [part for path in PARTS for part in import_string(path)(worker) if part.alone] == []


# Duties

DUTIES = {f"{duty.name} {when.value}": duty for when in When for duty in duties_of(when)}
DUTIES |= {duty.name: duty for duty in (MARK_READY, REAP, PRUNE)}


def old_worker(number):
    Worker.objects.create(id=str(number) * 12, host="ash", pid=1, version="1", database="default")
    raw(Worker).update(heartbeat=ago(25 * 3600))


def old_waiter():
    change(put(Rollout, state="started"), **parking())


# One row with which each has something to do, of a model or beside it.
ROWS = {
    "mark_ready": (Step, lambda: put(Step, state_ready=False, state_next_attempt=ago(1))),
    "reap": (Step, lambda: put(Step, **LEASED)),
    "settle start": (Step, lambda: change(put(Step, state="failed"), state_ready=True)),
    "rename pass": (Step, lambda: change(put(Step), state="older")),
    "move_matching pass": (Order, lambda: put(Order, amount=500)),
    "time_out pass": (Step, lambda: put(Step, state_ready=False, state_changed=ago(7201))),
    "delete_due pass": (Rest, lambda: put(Rest, state_changed=ago(61))),
    "reopen start": (Rollout, old_waiter),  # stator.extensions.related
    "reopen pass": (Rollout, old_waiter),  # stator.extensions.related
    "shadow pass": (Flyer, lambda: put(Flyer, state="queued")),  # stator.extensions.shadow
    "prune": (Step, lambda: old_worker(Worker.objects.count())),
}
WITHOUT_ROWS = {
    "partitions first",  # stator.extensions.partitions
    "sample_depths together",  # stator.extensions.stats
}
# Looks at so many rows at a time by itself.
IN_PAGES = "shadow pass"


BESIDE = (
    ShadowLine,  # stator.extensions.shadow
    Depth,  # stator.extensions.stats
    Worker,
)


def seen(model):
    """What duties may change."""
    return {(each, row.pk): vars(row) | {"_state": None} for each in (model, *BESIDE) for row in raw(each)}


def test_each_duty_is_tried_here_and_those_of_the_core_come_first():
    assert DUTIES.keys() - ROWS.keys() == WITHOUT_ROWS
    for when in When:
        own = [duty for duty in CORE if duty.when is when]
        assert duties_of(when)[: len(own)] == tuple(own)


@pytest.mark.parametrize("name", DUTIES)
def test_duty_does_nothing_where_there_are_no_rows(name):
    model = ROWS.get(name, (Step, None))[0]
    perform(DUTIES[name], operations_of(model), stopped=lambda: False)
    # A sample says that there are none.
    assert [row for row in seen(model) if row[0] is not Depth] == []


@pytest.mark.parametrize("name", ROWS)
def test_duty_does_so_much_at_a_time_until_nothing_is_left_and_nothing_twice(name):
    model, put_one = ROWS[name]
    for _ in range(5):
        put_one()
    operations, before = operations_of(model), seen(model)
    perform(replace(DUTIES[name], limit=2), operations, stopped=lambda: True)
    some = seen(model)
    changed = {key for key in before.keys() | some.keys() if before.get(key) != some.get(key)}
    assert changed
    assert name == IN_PAGES or len(changed) <= 2
    perform(replace(DUTIES[name], limit=2), operations, stopped=lambda: False)
    everything = seen(model)
    assert name == IN_PAGES or {key for key in before if before[key] == everything.get(key)} == set()
    perform(DUTIES[name], operations, stopped=lambda: False)
    assert seen(model) == everything
