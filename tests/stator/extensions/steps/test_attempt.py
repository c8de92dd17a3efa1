"""Durable steps: each is called until it is recorded, and never after that; a claim that has ended records nothing."""

import asyncio
import time
from datetime import date

import pytest
from django.db import OperationalError, transaction

from stator.db import own_tables
from stator.db.interface import new_token
from stator.exceptions import LeaseLost, StepRefused
from stator.extensions.steps import attempt as durable
from stator.extensions.undo.models import UNDONE_WITHIN
from stator.models import Step
from stator.testing import advance, attempt, drain, steps
from tests.sizes import PATIENCE
from tests.stator.making import ago, begun_beside, change, claim_all, operations_of, row
from tests.testapp.stepped import KeptPurchase, Purchase, anoted, calls, noted, scripts

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clean():
    yield
    calls.clear()
    scripts.clear()


def scripted(script, state="new", model=Purchase):
    """Return an object in a state whose handler runs this script."""
    scripts["it"] = script
    order = model.objects.create(script="it")
    if state != "new":
        order.transition_perform(state)
    return order


def names():
    return [name for name, _ in calls]


def refused(order):
    """Attempt an order whose step is refused, and return why."""
    failure = attempt(order).failure
    assert failure.kind == "stator.exceptions.StepRefused"
    return failure.message


def failing_once(order):
    """Pay in three steps; the first attempt fails after the second."""
    got = [order.stator.step(name, noted(order, name)) for name in ("reserve", "charge")]
    if order.stator.attempt == 1:
        raise ValueError("lost the network")
    scripts["got"] = [*got, order.stator.step("mail", noted(order, "mail"))]
    return "paid"


def test_later_attempt_gets_recorded_results_without_a_call_and_another_visit_none():
    order = scripted(failing_once)
    assert attempt(order).failure.message == "lost the network"
    assert steps(order) == {"reserve": "reserve done", "charge": "charge done"}
    assert set(Step.objects.values_list("state", "attempt")) == {("new", 1)}
    # Time ends no visit.
    advance(90, Purchase)
    attempt(order)
    assert (order.state, names()) == ("paid", ["reserve", "charge", "mail"])
    assert scripts["got"] == ["reserve done", "charge done", "mail done"]
    order.transition_perform("new")
    assert steps(order) == {}
    attempt(order)
    assert names() == ["reserve", "charge", "mail", "reserve", "charge"]


def test_step_whose_call_raises_is_not_recorded_and_may_be_repeated_at_once():
    def stubborn(order):
        def once():
            calls.append(("charge", ""))
            if len(calls) < 3:
                raise ConnectionError("no answer")
            return 7

        try:
            order.stator.step("charge", once)
        except ConnectionError:
            order.stator.step("charge", once)
        return "paid"

    order = scripted(stubborn)
    assert attempt(order).failure.message == "no answer"
    assert not Step.objects.exists()
    attempt(order)
    assert (order.state, len(calls)) == ("paid", 3)


def test_each_step_has_an_idempotency_key_that_is_equal_in_all_attempts():
    def twice(order):
        before = order.stator.idempotency_key
        for name in ("charge", "mail"):
            order.stator.step(name, noted(order, name))
        assert order.stator.idempotency_key == before

    def charge(order):
        twice(order)
        Step.objects.all().delete()
        raise ValueError

    order = scripted(charge)
    attempt(order)
    scripts["it"] = twice
    attempt(order)
    base = f"testapp.purchase:{order.pk}:0:new"
    assert calls == [("charge", f"{base}:charge"), ("mail", f"{base}:mail")] * 2


def test_changed_order_and_removed_steps_are_no_error():
    order = scripted(failing_once)
    attempt(order)

    def changed(order):
        assert order.stator.step("charge", noted(order, "charge")) == "charge done"
        order.stator.step("print", noted(order, "print"))
        return "paid"

    scripts["it"] = changed
    attempt(order)
    assert (order.state, names()) == ("paid", ["reserve", "charge", "print"])


def test_first_attempt_gets_the_result_as_later_ones_do():
    def dated(order):
        assert order.stator.step("mail", lambda: calls.append(("mail", ""))) is None
        value = {"on": date(2026, 1, 2), "parts": (1, 2), "text": "NUL \0 and half a pair \ud800", 3: 1e23}
        scripts["got"].append(order.stator.step("sign", lambda: value))
        raise ValueError

    order = scripted(dated)
    scripts["got"] = []
    attempt(order)
    attempt(order)
    first, later = scripts["got"]
    # None is a result.
    assert names() == ["mail"]
    assert first == later == {"on": "2026-01-02", "parts": [1, 2], "text": "NUL \0 and half a pair \ud800", "3": 1e23}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (lambda s: [s.step("a", list), s.step("a", list)], "step 'a' is used twice in one attempt; give"),
        (lambda s: s.step("a", lambda: s.step("b", list)), "step 'b' is called within step 'a'; a step"),
        (lambda s: s.step("", list), "'' is no name of a step; use 1 to 100 printable characters"),
        (lambda s: s.step("x" * 101, list), "is no name of a step"),
        (lambda s: s.step("a\0", list), "is no name of a step"),
        (lambda s: s.step(7, list), "7 is no name of a step"),
        (lambda s: s.step("a", object), "step 'a' returned what JSON cannot express: Object of type object"),
        (lambda s: s.step("a", lambda: float("nan")), "step 'a' returned what JSON cannot express: Out of range"),
        (lambda s: s.step("a", lambda: "x" * 300_000), "returned 300,002 bytes as JSON; the most is 262,144"),
        (lambda s: s.step("a", anoted(s.instance, "a")), "step 'a' returned a coroutine; use `await"),
    ],
)  # fmt: skip
def test_step_that_cannot_be_recorded_is_refused_in_one_sentence(script, why):
    order = scripted(lambda order: script(order.stator))
    assert why in refused(order)
    assert not Step.objects.exclude(name="a", result="[]").exists()


def test_step_in_a_transaction_of_the_handler_is_refused_before_its_call():
    def careless(order):
        with transaction.atomic():
            order.stator.step("charge", noted(order, "charge"))

    assert "step 'charge' is called in a transaction, which could undo its record" in refused(scripted(careless))
    order = scripted(None, "sealed")
    assert "step 'seal' is called in an atomic state (sealed), which could undo" in refused(order)
    assert not calls


def test_objects_of_a_failed_batch_use_the_names_of_their_steps_again():
    orders = [scripted(None, "heaped") for _ in range(3)]
    drain(Purchase)
    assert sorted(names()) == sorted(f"charge {order.pk}" for order in orders)
    assert {row(order).state for order in orders} == {"done"}


@pytest.mark.parametrize("implementation", ["vendor", "portable"])
def test_claim_that_has_ended_records_nothing(implementation):
    order = scripted(None)
    operations = operations_of(Purchase, implementation)
    [claim] = claim_all(operations)
    claim.step("reserve", lambda: "reserve done")
    change(order, state_claim=new_token("0" * 12))
    with pytest.raises(LeaseLost, match=r"the claim on it has ended; step 'charge' is not recorded"):
        claim.step("charge", lambda: "paid")
    assert steps(order) == {"reserve": "reserve done"}


def test_record_that_is_sent_twice_since_no_answer_came_counts_once():
    order = scripted(None)
    [claim] = claim_all(operations_of(Purchase))
    recorded = claim.own_steps()
    assert [recorded.record("charge", 7), recorded.record("charge", 7)] == [7, 7]
    with pytest.raises(StepRefused, match="step 'charge' is recorded already, with another result"):
        recorded.record("charge", 8)
    assert steps(order) == {"charge": 7}


def test_claim_of_a_program_records_nothing_after_its_lease():
    order = scripted(None)
    [claim] = claim_all(operations_of(Purchase))
    change(order, state_locked_until=order.state_changed)
    with pytest.raises(LeaseLost):
        claim.own_steps(in_time=True).record("charge", 7)
    assert not Step.objects.exists()


def test_steps_of_an_asynchronous_handler_run_at_the_same_time():
    async def gathered(order):
        both = asyncio.Barrier(2)

        async def meet():
            await asyncio.wait_for(both.wait(), 30)
            calls.append((order.stator.idempotency_key.rpartition(":")[2], ""))
            return len(calls)

        got = await asyncio.gather(order.stator.astep("left", meet), order.stator.astep("right", meet))
        assert sorted(got) == [1, 2]
        if order.stator.attempt == 1:
            raise ValueError("again")
        return "done"

    order = scripted(gathered, "paid")
    assert attempt(order).failure.message == "again"
    attempt(order)
    assert (order.state, sorted(names())) == ("done", ["left", "right"])


def test_synchronous_step_on_an_event_loop_is_refused_before_its_call():
    async def confused(order):
        order.stator.step("charge", noted(order, "charge"))

    assert "step 'charge' is called on an event loop; use `await" in refused(scripted(confused, "paid"))
    assert not calls


def test_move_deletes_the_steps_of_the_visit_unless_the_model_has_history():
    for model, left in ((Purchase, 0), (KeptPurchase, 3)):
        order = scripted(failing_once, model=model)
        attempt(order)
        attempt(order)
        assert order.state == "paid"
        assert Step.objects.filter(model_label=model._meta.label_lower).count() == left


@pytest.mark.needs("undo")
@pytest.mark.parametrize("model", [Purchase, KeptPurchase])
def test_steps_of_visits_that_ended_otherwise_are_pruned_in_parts(model):
    orders = [scripted(failing_once, model=model) for _ in range(4)]
    for order in orders:
        attempt(order)
    attempted, moved, deleted, _ = orders
    moved.transition_perform("new")
    deleted.delete()
    Step.objects.exclude(object_pk=str(attempted.pk)).update(at=ago(100))
    # Before, the move can be undone.
    advance(UNDONE_WITHIN, model)
    for _ in range(8):
        own_tables.prune("default", 1, errors=1e6, history=90, stats=1e6)
    left = Step.objects.values_list("object_pk", flat=True).distinct()
    assert {int(pk) for pk in left} == {attempted.pk, orders[3].pk}


def test_ended_steps_of_a_model_with_history_are_on_its_page(admin_client):
    order = scripted(failing_once, model=KeptPurchase)
    attempt(order)
    attempt(order)
    text = admin_client.get(f"/admin/testapp/keptpurchase/{order.pk}/stator/").content.decode()
    assert all(f"Step {name} done in new" in text for name in ("reserve", "charge", "mail"))
    # Their results are on pages of their own.
    assert text.count("mail done") == 1
    step = Step.objects.latest("pk")
    assert "&quot;mail done&quot;" in admin_client.get(f"/admin/stator/step/{step.pk}/change/").content.decode()


@pytest.mark.postgresql
def test_record_waits_for_a_transaction_that_ends_the_claim_and_is_refused(transactional_db):
    order = scripted(None)
    [claim] = claim_all(operations_of(Purchase))
    with transaction.atomic():
        order.transition_perform("paid")
        record = begun_beside(lambda: claim.own_steps().record("charge", 7))
        assert not record.done()
    with pytest.raises(LeaseLost):
        record.result(PATIENCE)
    assert not Step.objects.exists()


def test_databases_whose_inserts_return_nothing_record_in_two_statements(monkeypatch):
    monkeypatch.setattr("stator.extensions.steps.attempt.is_one_statement", lambda connection: False)
    order = scripted(None)
    [claim] = claim_all(operations_of(Purchase))
    assert claim.step("charge", lambda: 7) == claim.own_steps().record("charge", 7) == 7
    change(order, state_claim=new_token("0" * 12))
    with pytest.raises(LeaseLost):
        claim.step("mail", lambda: 8)
    assert steps(order) == {"charge": 7}


@pytest.mark.needs("problems")
def test_steps_that_are_done_and_the_one_that_runs_are_explained():
    def look(order):
        order.stator.step("reserve", noted(order, "reserve"))
        order.stator.step("charge", lambda: (order.stator.show_news(), scripts["got"].extend(order.explain()))[:0])
        raise ValueError

    order = scripted(look)
    scripts["got"] = []
    attempt(order)
    leased = next(reason for reason in scripts["got"] if reason.code == "leased")
    assert leased.sentence.endswith("Done: 1, step charge runs.")
    done = order.explain()[-1]
    assert (done.code, done.numbers) == ("steps_done", {"steps": ["reserve", "charge"]})
    assert done.sentence == "Its attempts have done the steps reserve and charge; a further one does not repeat them."


def test_step_is_recorded_when_the_database_returns_and_not_called_again(transactional_db, monkeypatch):
    tries, record = [], durable._record

    def cut_off(*args, **options):
        tries.append(args)
        if len(tries) < 3:
            raise OperationalError("the connection is closed")
        return record(*args, **options)

    monkeypatch.setattr(durable, "_record", cut_off)
    order = scripted(lambda order: order.stator.step("charge", noted(order, "charge")) and "paid")
    attempt(order)
    assert (order.state, names(), len(tries)) == ("paid", ["charge"], 3)


def test_outage_that_outlasts_the_claim_is_an_error_of_the_attempt(transactional_db, monkeypatch):
    def cut_off(*args, **options):
        raise OperationalError("the connection is closed")

    def late(order):
        order.stator.deadline = time.monotonic() + 0.25
        order.stator.step("charge", noted(order, "charge"))

    monkeypatch.setattr(durable, "_record", cut_off)
    order = scripted(late)
    assert attempt(order).failure.message == "the connection is closed"
    assert not Step.objects.exists()
