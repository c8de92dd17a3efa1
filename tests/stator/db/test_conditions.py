"""Conditions of extensions: a store has those that say something about its model, and claims what all allow."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.db.models import Q

from stator.batteries import extensions
from stator.db import suspensions
from stator.db.conditions import CLAIM, CONDITIONS, Condition, StoredCondition
from stator.db.probe import look
from stator.extensions.limits.condition import LimitedStates
from stator.extensions.model_rules.condition import Ruled
from stator.extensions.pauses.condition import Paused
from stator.extensions.refusals.condition import NotRefused
from stator.extensions.related.condition import Parked, WaitingForRelated
from stator.extensions.shadow.watch import InShadow
from tasks.models import Task
from tasks.queue.process_eligibility import Eligible
from tests.stator.extensions.refusals.refused import refusals_of
from tests.stator.making import FREE, change, operations_of, put, raw
from tests.tasks.making import make_queue
from tests.testapp.explained import Errand
from tests.testapp.operators import Parcel
from tests.testapp.power import Ride, Visitor
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db(transaction=True)


# The contract of every condition: what it holds is neither claimed nor found by polls, until it lets it go


@contextmanager
def paused(store, monkeypatch):
    held, free = put(Errand, tenant=1), put(Errand, tenant=2)
    Errand.stator.pause(where={"tenant": 1})
    yield held, [free]
    Errand.stator.resume()


@contextmanager
def ruled(store, monkeypatch):
    yield put(Ride, place="far"), [put(Ride)]
    monkeypatch.setattr(Ride, "places", ["near", "far"])


@contextmanager
def refused(store, monkeypatch):
    held, free = put(Errand), put(Errand)
    refusals_of(store).note(CLAIM, held.pk, ValueError("no"))
    yield held, [free]
    later = time.monotonic() + 10**6
    monkeypatch.setattr(suspensions, "time", SimpleNamespace(monotonic=lambda: later))


@contextmanager
def limited(store, monkeypatch):
    free, held = [put(Visitor), put(Visitor)], put(Visitor)
    yield held, free
    change(free[0], **FREE)


@contextmanager
def related(store, monkeypatch):
    build = Build.objects.create(slow=True)
    yield put(Rollout, build=build), [put(Rollout)]
    build.transition_perform("built")


@contextmanager
def served(store, monkeypatch):
    queue = make_queue(actions_elsewhere=False)
    held, free = queue.publish("echo").task, queue.publish("echo").task
    change(held, action="unknown here")
    yield held, [free]
    change(held, action="echo")


CASES = {
    Paused: (Errand, paused),  # stator.extensions.pauses
    Ruled: (Ride, ruled),  # stator.extensions.model_rules
    NotRefused: (Errand, refused),  # stator.extensions.refusals
    LimitedStates: (Visitor, limited),  # stator.extensions.limits
    WaitingForRelated: (Rollout, related),  # stator.extensions.related
    Eligible: (Task, served),
}
NEVER_READY = {
    Parked,  # stator.extensions.related
    InShadow,  # stator.extensions.shadow
}


@pytest.mark.needs("queue")
def test_every_condition_has_a_case_but_the_one_of_rows_that_are_not_ready_anyway():
    assert {*CASES, *NEVER_READY} == {*CONDITIONS.all}


@pytest.mark.parametrize("implementation", ["vendor", "portable"])
@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_what_a_condition_holds_is_neither_claimed_nor_found_until_it_lets_it_go(kind, implementation, monkeypatch):
    model, case = CASES[kind]
    store = operations_of(model, implementation)

    def claim():
        # One state, as where the others have limits of their own.
        return [each.pk for each in store.claim([model.state_graph.initial_state], 10)]

    with case(store, monkeypatch) as (held, free):
        look(store)
        assert claim() == [each.pk for each in free]
        assert claim() == []
        # A poll asks nothing of what may end at any moment.
        assert not look(store)[store].ready or kind is LimitedStates
    assert look(store)[store].ready
    assert claim() == [held.pk]


# How conditions are composed


class SmallTenants(Condition):
    allowed = Q(tenant__lt=2)

    def rows(self, deed):
        return self.allowed if deed == CLAIM else None

    def holds(self):
        return self.allowed


class OneAtOnce(Condition):
    def gates(self, states):
        return True

    def room(self, states, limit, *, sure):
        assert not sure or self._store.connection.in_atomic_block
        return min(limit, 1)


class OnlyNew(Condition):
    def states(self, wanted):
        return [state for state in wanted if state.name == "new"]


@pytest.fixture(params=["vendor", "portable"])
def operations_with(request, monkeypatch):
    def made(*further, model=Errand):
        monkeypatch.setattr(CONDITIONS, "all", (*CONDITIONS.all, *further))
        return operations_of(model, request.param)

    return made


def claimed(operations, limit=10):
    return [claim.pk for claim in operations.claim(operations.automatic, limit)]


def test_claim_and_poll_meet_all_conditions(operations_with):
    rows = [put(Errand, tenant=tenant) for tenant in range(4)]
    put(Errand, tenant=1, state="heir")
    operations = operations_with(SmallTenants, OnlyNew)
    Errand.stator.pause(where={"tenant": 0})
    assert look(operations)[operations].ready
    assert claimed(operations) == [rows[1].pk]
    assert not look(operations)[operations].ready


def test_claim_takes_no_more_than_a_condition_has_room_for(operations_with):
    for _ in range(3):
        put(Errand)
    operations = operations_with(OneAtOnce)
    assert [len(claimed(operations)) for _ in range(2)] == [1, 1]


def test_rows_that_a_condition_no_longer_lets_a_worker_hold_are_released(operations_with):
    kept, withdrawn = put(Errand, tenant=1), put(Errand, tenant=1)
    operations = operations_with(SmallTenants)
    claims = operations.claim([Errand.state_graph.new], 10)
    raw(Errand).filter(pk=withdrawn.pk).update(tenant=5)
    [ended] = operations.renew(claims)
    assert {claim.pk for claim in claims if id(claim) == ended} == {withdrawn.pk}
    assert raw(Errand).get(pk=kept.pk).state_claim is not None


def test_model_without_conditions_has_no_filter_and_no_gate():
    operations = operations_of(Parcel)
    assert not operations.conditions.rows()
    assert not operations.conditions.gates(operations.automatic)
    assert operations.conditions.holds() is None
    assert operations.conditions.states(operations.automatic) == operations.automatic


def test_filter_is_the_same_object_while_it_means_the_same(operations_with):
    operations = operations_with(SmallTenants)
    Errand.stator.pause(where={"tenant": 0})
    look(operations)
    first = operations.conditions.rows()
    look(operations)
    assert operations.conditions.rows() is first
    Errand.stator.pause(where={"tenant": 1})
    look(operations)
    assert operations.conditions.rows() is not first
    refusals_of(operations).note(CLAIM, 1, ValueError("no"))
    refused = operations.conditions.rows()
    assert operations.conditions.rows() is refused


def test_conditions_have_the_order_of_the_extensions():
    paths = [path for extension in extensions() for path in extension.conditions]
    assert [f"{kind.__module__}.{kind.__qualname__}" for kind in CONDITIONS.all] == paths
    for model in (Visitor, Task):
        bound = [type(each) for each in operations_of(model).conditions._bound]
        assert bound == sorted(bound, key=CONDITIONS.all.index)


def test_app_hears_what_pauses_hold_back_and_not_what_was_refused():
    operations = operations_of(Task)
    [own] = [each for each in operations.conditions._bound if isinstance(each, Eligible)]
    refusals_of(operations).note(CLAIM, 1, ValueError("no"))
    assert own.held_back == Q()
    Task.stator.pause(where={"action": "other"})
    look(operations)
    assert own.held_back == Q(Q(state__in=["pending"]) & Q(action="other"), _connector=Q.OR)


@pytest.mark.parametrize("kind", CONDITIONS.all, ids=lambda kind: kind.__name__)
def test_condition_that_nothing_is_stored_of_says_nothing_about_an_ordinary_model(kind):
    operations = operations_of(Parcel)
    bound = kind.bind(operations, ())
    if bound is None:
        return
    assert bound.states(operations.automatic) == operations.automatic
    assert bound.rows(CLAIM) is None
    assert bound.holds() is None
    assert not bound.gates(operations.automatic)
    if isinstance(bound, StoredCondition):
        assert not bound.take([])
        assert bound.sign == 0


def test_rows_are_not_claimed_before_it_is_known_what_holds_them_back(monkeypatch):
    monkeypatch.setattr(CONDITIONS, "all", None)
    with pytest.raises(RuntimeError, match=r"testapp.errand: nothing can be claimed before the app stator is ready"):
        operations_of(Errand)
