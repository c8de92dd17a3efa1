"""From its next poll on, no worker claims paused rows; other rows are claimed as before."""

import pytest

from stator.db import chores
from stator.db.probe import look
from stator.extensions.pauses.models import MAX_OBJECTS, is_paused_by_name, pause_objects, resume_objects
from stator.graph.outcomes import Moved
from stator.models import Action, History, Pause
from stator.runner import StatorRunner
from stator.worker.dispatcher import lanes_of
from tests.stator.making import ago, change, operations_of, put, raw
from tests.testapp.explained import Errand
from tests.testapp.keys import UuidKeyed
from tests.testapp.mails import Mail
from tests.testapp.power import Customer, Order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["vendor", "portable"])
def operations(request):
    return operations_of(Errand, request.param)


def claimed(operations):
    return {claim.pk for lane in lanes_of(operations) for claim in operations.claim(lane.states, 100)}


def test_paused_rows_are_not_claimed_and_the_others_are(operations):
    rows = [put(Errand, tenant=tenant) for tenant in range(6)]
    heir = put(Errand, state="heir", tenant=3)
    Errand.stator.pause("new", where={"tenant": 2})
    Errand.stator.pause("new", where={"tenant": 3})
    Errand.stator.pause(where={"tenant": 5, "name": ""})
    assert claimed(operations) == {rows[0].pk, rows[1].pk, rows[4].pk, heir.pk}


def test_worker_sees_that_pauses_were_replaced_by_one_whose_key_is_the_sum_of_theirs(operations):
    heir = put(Errand, state="heir")
    put(Errand)
    first, second = Errand.stator.pause("heir"), Errand.stator.pause("limited")
    look(operations)
    Errand.stator.resume()
    Pause.objects.create(pk=first.pk + second.pk, model_label="testapp.errand", state="new")
    look(operations)
    assert claimed(operations) == {heir.pk}


@pytest.mark.parametrize("what", [{}, {"state": "new"}, {"where": {"tenant": 0}}])
def test_worker_obeys_at_its_next_look_and_works_again_after_the_resume(operations, what):
    put(Errand)
    assert look(operations)[operations].ready
    Errand.stator.pause(**what)
    assert not look(operations)[operations].ready
    assert claimed(operations) == set()
    assert Errand.stator.resume() == 1
    assert look(operations)[operations].ready
    assert len(claimed(operations)) == 1


def test_expired_pause_ends_by_itself(operations):
    put(Errand)
    Errand.stator.pause(seconds=60)
    look(operations)
    assert claimed(operations) == set()
    raw(Pause).update(until=ago(1))
    look(operations)
    assert len(claimed(operations)) == 1


def test_what_runs_may_finish(operations):
    errand = put(Errand)
    (claim,) = operations.claim([Errand.state_graph.new], 1)
    Errand.stator.pause()
    look(operations)
    written = operations.record([(claim, Moved(Errand.state_graph.done))])
    assert (len(written.moves), raw(Errand).get(pk=errand.pk).state) == (1, "done")


def test_timeouts_and_conditions_of_external_states_go_on(operations):
    put(Errand, state="outside", state_changed=ago(4 * 86400), state_ready=False)
    put(Errand, state="asked", tenant=-1, state_ready=False)
    Errand.stator.pause()
    look(operations)
    assert chores.time_out(operations, 10).count == 1
    assert chores.move_matching(operations, 10).count == 1


def test_worker_that_starts_and_drains_leaves_paused_rows_alone():
    kept, moved = put(Errand, tenant=1), put(Errand, tenant=2)
    Errand.stator.pause(where={"tenant": 1})
    summary = StatorRunner([Errand], until_idle=True).run()
    assert summary.handled == {"testapp.errand": 1}
    assert [raw(Errand).get(pk=row.pk).state for row in (kept, moved)] == ["new", "done"]
    assert StatorRunner([Errand]).run_single_cycle() == 0


@pytest.mark.parametrize("name", ["customer", "customer_id", None])
def test_pause_compares_the_key_of_a_related_object_or_null(name):
    some = Customer.objects.create(blocked=True)
    customers = (some, None) if name else (None, some)
    held, free = (put(Order, state="working", customer=each, state_ready=True) for each in customers)
    raw(Order).update(state_next_attempt=None)
    Order.stator.pause(where={name or "customer": customers[0] and some.pk})
    assert claimed(operations_of(Order)) == {free.pk}
    assert held.explain()[0].code == "paused"


@pytest.mark.parametrize("lookup", ["customer__blocked", "id__lt", "state__in"])
def test_lookups_are_refused_with_what_to_do_instead(lookup):
    value = ["working"] if lookup.endswith("in") else 1
    with pytest.raises(ValueError, match=r"a pause compares fields of testapp.Order .*claimable in StatorMeta"):
        Order.stator.pause(where={lookup: value})
    assert not Pause.objects.exists()


def test_resume_ends_what_was_named():
    for state, where in (("", {}), ("new", {}), ("heir", {}), ("", {"tenant": 3}), ("new", {"tenant": 3})):
        Errand.stator.pause(state, where)
    assert Errand.stator.resume("heir") == 1
    assert Errand.stator.resume("new", {"tenant": 3}) == 1
    assert Errand.stator.resume("new") == 1
    assert Errand.stator.resume(where={"tenant": 4}) == 0
    assert Errand.stator.resume() == 2
    assert Errand.stator.resume() == 0
    assert Pause.objects.count() == 5


def test_state_is_named_by_its_value_even_if_that_is_zero():
    for state in (0, "0", "queued"):
        assert Mail.stator.pause(state).state == "queued"
        assert (Mail.stator.resume(3), Mail.stator.resume(state)) == (0, 1)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"state": "nowhere"}, "'nowhere' is not a state of ErrandGraph"),
        ({"where": {"tenent": 3}}, "does not fit testapp.Errand: Cannot resolve keyword 'tenent'"),
        ({"where": {"tenant": "three"}}, "does not fit testapp.Errand: .*expected a number but got 'three'"),
        ({"where": {"tenant__lt": float("inf")}}, "cannot be stored as JSON"),
        ({"where": {"name__nope": "a"}}, "does not fit testapp.Errand"),
        ({"where": {"name__regex": "("}}, "patterns are not allowed"),
        ({"where": {"name": "a\0b"}}, "must not have a NUL"),
        ({"where": {"name": object()}}, "cannot be stored as JSON"),
        ({"where": {"tenant__range": [1]}}, "does not fit testapp.Errand: tuple index out of range"),
        ({"where": [3]}, "must be a dictionary of lookups"),
        ({"where": {"name": "a" * 3000}}, "more than 2000 characters"),
        ({"seconds": 0}, "seconds=0 must be a number above 0"),
        ({"seconds": float("nan")}, "must be a number above 0"),
    ],
)
def test_pause_that_cannot_be_meant_is_refused_in_one_line(what, message):
    with pytest.raises(ValueError, match=message) as refused:
        Errand.stator.pause(**what)
    assert "\n" not in str(refused.value)
    assert not Pause.objects.exists()


def test_pause_that_workers_would_not_read_is_refused(monkeypatch):
    monkeypatch.setattr("stator.extensions.pauses.models.MAX_PAUSES", 2)
    Errand.stator.pause("new", seconds=60)
    Errand.stator.pause()
    with pytest.raises(ValueError, match="workers read at most 2 pauses, and so many are active"):
        Errand.stator.pause(where={"tenant": 3})
    Errand.stator.resume("new")
    assert Errand.stator.pause(where={"tenant": 3})


def test_pause_of_filtered_rows_is_refused():
    with pytest.raises(ValueError, match=r"pause\(\) does not take filtered rows; use Errand.stator.pause\(where="):
        Errand.stator.filter(tenant=3).pause()
    with pytest.raises(ValueError, match=r"resume\(\) does not take filtered rows"):
        Errand.stator.filter(tenant=3).resume()


@pytest.mark.parametrize("where", [{"dropped_column": 1}, {"tenant__lt": 0}], ids=["a column", "a lookup of 1.1"])
def test_condition_that_this_code_does_not_understand_holds_the_whole_state(operations, caplog, where):
    put(Errand)
    heir = put(Errand, state="heir")
    raw(Pause).create(model_label="testapp.errand", state="new", where=where)
    look(operations)
    assert claimed(operations) == {heir.pk}
    assert "stator.pause_unclear" in caplog.text


def test_retry_and_unlock_record_who_did_it():
    errand = put(Errand, state_failures=2)
    Errand.stator.retry(actor="ada")
    change(errand, state_claim="00000000-0000-8000-8100-000000000001")
    Errand.stator.unlock(actor="ada")
    kept = History.objects.order_by("pk").values_list("actor", "reason", "source", "to", "kind")
    assert list(kept) == [("ada", "retried", "new", "", "hand"), ("ada", "unlocked", "new", "", "hand")]
    Errand.stator.retry()
    assert History.objects.count() == 2


def pause_by_name(model, pks):
    pause_objects(model, "default", pks, Action.of(model, "pause", "ada", "look into it"), 600)


def test_objects_paused_by_name_are_not_claimed_until_they_are_resumed(operations):
    one, two, other = (put(Errand) for _ in range(3))
    pause_by_name(Errand, [one.pk, two.pk])
    assert claimed(operations) == {other.pk}
    [before] = Pause.objects.active()
    assert resume_objects(Errand, "default", [one.pk, other.pk], actor="bob") == 1
    [after] = Pause.objects.active()
    assert (after.where, after.reason, after.actor, after.until) == (
        {"pk__in": [two.pk]}, "look into it", "ada", before.until,
    )  # fmt: skip
    assert look(operations)[operations].ready
    assert claimed(operations) == {one.pk}
    assert [is_paused_by_name(Errand, "default", row.pk) for row in (one, two)] == [False, True]


def test_resuming_objects_leaves_other_pauses_alone():
    errand = put(Errand)
    Errand.stator.pause()
    Errand.stator.pause(where={"pk__in": [errand.pk], "tenant": 0})
    Pause.objects.create(model_label="testapp.errand", where={"pk__in": "1"})
    assert resume_objects(Errand, "default", [errand.pk], actor="ada") == 0
    assert Pause.objects.active().count() == 3


def test_pause_that_would_name_too_many_objects_is_refused():
    with pytest.raises(ValueError, match=f"names at most {MAX_OBJECTS} objects"):
        pause_by_name(Errand, list(range(MAX_OBJECTS + 1)))
    pause_by_name(UuidKeyed, [put(UuidKeyed).pk for _ in range(MAX_OBJECTS)])
