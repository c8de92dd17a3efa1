"""Objects move with the last of their related objects, or with the first, in the transaction of that one's move."""

from dataclasses import replace

import pytest
from django.db import OperationalError, transaction

from stator.checks.tables import check_watches
from stator.db import chores
from stator.db.records import Records
from stator.exceptions import GraphError
from stator.extensions.related.watches import watches_of
from stator.graph import State, StateGraph
from stator.graph.outcomes import Moved
from stator.models import History
from stator.signals import transitioned
from stator.testing import finish_children
from tests.sizes import PATIENCE
from tests.stator.making import FREE, ago, at_once, begun_beside, change, claim_all, operations_of, put, raw, row
from tests.stator.running import connected, hearing, work
from tests.testapp.baskets import Basket, Driver, Item, ItemGraph, Van
from tests.testapp.mails import Sack, Slip

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["vendor", "portable"])
def items(request):
    return operations_of(Item, request.param)


@pytest.fixture
def baskets(items, request):
    return operations_of(Basket, request.node.callspec.params["items"])


def basket_of(count: int = 2, /, state: str = "collecting", **values):
    basket = put(Basket)
    change(basket, state=state)
    return basket, [put(Item, basket=basket, **values) for _ in range(count)]


def by_attempt(items, item):
    claims = [claim for claim in claim_all(items) if claim.pk == item.pk]
    assert items.record([(claim, Moved(ItemGraph.packed)) for claim in claims]).moves
    raw(Item).filter(state="waiting").update(state_ready=True, **FREE)


def by_hand(items, item):
    item.transition_perform("packed")


@pytest.mark.parametrize("move", [by_attempt, by_hand])
def test_last_of_all_moves_the_waiting_object_in_its_own_transaction(items, move):
    basket, (first, last) = basket_of()
    move(items, first)
    assert row(basket).state == "collecting"
    move(items, last)
    moved = row(basket)
    assert (moved.state, moved.state_version) == ("ready", 1)
    kept = History.objects.get(model_label="testapp.basket")
    assert (kept.kind, kept.reason, kept.version) == ("move", "all of items in packed", 1)


def test_any_of_many_moves_it_at_once(items):
    basket, (first, last) = basket_of(state_ready=False)
    change(first, state="packing", state_changed=ago(4000))
    assert chores.time_out(items, 10).count == 1
    assert row(basket).state == "manual"
    last.transition_perform("packed")
    assert row(basket).state == "manual"


def test_batch_of_many_moves_all_that_it_completes_and_no_other(items):
    complete, partial = [basket_of() for _ in range(3)], [basket_of(3) for _ in range(2)]
    put(Item)
    kept = {held[-1].pk for _, held in partial}
    claims = [claim for claim in claim_all(items) if claim.pk not in kept]
    assert len(items.record([(claim, Moved(ItemGraph.packed)) for claim in claims]).moves) == 11
    assert {row(basket).state for basket, _ in complete} == {"ready"}
    assert {row(basket).state for basket, _ in partial} == {"collecting"}


def test_object_that_begins_to_wait_when_all_is_done_goes_on_at_once():
    basket, (item,) = basket_of(1, state="filling")
    item.transition_perform("packed")
    assert row(basket).state == "filling"
    basket.refresh_from_db()
    basket.transition_perform("collecting")
    assert (row(basket).state, row(basket).state_version) == ("ready", 2)


def test_all_of_none_is_not_all_unless_it_says_so(baskets):
    basket, _ = basket_of(0, state="filling")
    basket.transition_perform("collecting")
    assert chores.move_matching(baskets, 10).count == 0
    assert row(basket).state == "collecting"
    van = Van.objects.create()
    assert chores.move_matching(operations_of(Van), 10).count == 1
    assert row(van).state == "loaded"


def test_related_object_in_a_state_that_this_code_does_not_know_is_not_done(baskets):
    basket, (first, last) = basket_of()
    change(last, state="weighed")
    first.transition_perform("packed")
    assert chores.move_matching(baskets, 10).count == 0
    assert row(basket).state == "collecting"


def test_moves_follow_each_other_over_relations_of_every_kind():
    driver, (basket, (item,)), closed = Driver.objects.create(), basket_of(1), put(Basket)
    change(closed, state="closed")
    van = Van.objects.create(driver=driver)
    van.baskets.set([basket, closed])
    with transaction.atomic():
        item.transition_perform("packed")
        assert [row(each).state for each in (basket, van)] == ["ready", "loaded"]
    driver.transition_perform("ready")
    assert row(van).state == "gone"
    # Vans keep no history.
    assert not History.objects.filter(model_label="testapp.van").exists()


def test_attempt_of_the_waiting_object_that_is_under_way_is_fenced():
    van, (basket, _) = Van.objects.create(), basket_of(0)
    van.baskets.add(basket)
    vans = operations_of(Van)
    (claim,) = claim_all(vans)
    basket.transition_perform("closed")
    assert row(van).state == "loaded"
    assert vans.record([(claim, Moved(Van.state_graph.gone))]).lost == [claim]


# What no move tells


def test_pass_finds_what_was_deleted_or_written_by_others(baskets):
    deleted, written, waiting, lost = (basket_of() for _ in range(4))
    for basket, (first, _) in (deleted, written, lost):
        first.transition_perform("packed")
        assert row(basket).state == "collecting"
    deleted[1][1].delete()
    change(written[1][1], state="packed")
    change(lost[1][1], state="lost")
    assert chores.move_matching(baskets, 10).count == 3
    assert [row(basket).state for basket, _ in (deleted, written, waiting, lost)] == [
        "ready", "ready", "collecting", "manual",
    ]  # fmt: skip


def test_children_are_finished_for_a_test_of_the_parent():
    basket, (first, _, last) = basket_of(3)
    first.transition_perform("packed")
    assert finish_children(basket) == 2
    assert (basket.state, row(last).state) == ("ready", "packed")
    with pytest.raises(ValueError, match=r"testapp.Basket \d+ is in ready, where it has no when_all"):
        finish_children(basket)


def test_children_are_finished_in_no_state_that_they_have_not():
    slip = put(Slip, sack=put(Sack))
    with pytest.raises(ValueError, match="'0' is not a state of SlipGraph"):
        finish_children(slip.sack, state=0)


# Why it waits


def test_explained_by_what_is_missing_and_linked(django_assert_max_num_queries, admin_client):
    basket, held = basket_of(6)
    for item, state in zip(held, ["packing", "packing", "lost", "packed", "packed", "packed"], strict=True):
        change(item, state=state, state_changed=ago(250))
    with django_assert_max_num_queries(7):
        every, some = basket.explain()
    assert every.code == "awaits_related"
    assert every.sentence.startswith("Waits for 3 of 6 items to be in packed: 2 in packing (the oldest for 4 m")
    assert every.sentence.endswith("), 1 lost.")
    assert some.sentence.startswith("Waits for one of 6 items to be in lost: 3 packed, 2 in packing")
    assert (every.numbers["missing"], every.numbers["total"]) == (3, 6)
    assert Basket.stator.explain_counts() == {"awaits_related": 1}
    url = f"/admin/testapp/item/?basket__exact={basket.pk}&state__exact=packing"
    text = admin_client.get(f"/admin/testapp/basket/{basket.pk}/change/").content.decode()
    assert f'<a href="{url.replace("&", "&amp;")}">Those in packing</a>' in text
    assert admin_client.get(url).context["cl"].result_count == 2


def test_explained_if_there_is_nothing_to_wait_for_or_nothing_left():
    (every, _) = basket_of(0)[0].explain()
    assert every.sentence == "Waits for items in packed; there are none."
    basket, (item,) = basket_of(1)
    change(item, state="packed")
    assert basket.explain()[0].sentence == "Waits for a worker's next pass: all 1 items are in packed."
    van = Van.objects.create(driver=Driver.objects.create())
    assert [reason.code for reason in van.explain()][-1] == "heeds_related"
    change(van, state="loaded")
    assert van.explain()[0].sentence == "Waits for one of 1 driver to be in ready: 1 in asleep (for 0 s)."


# At the same moment


@pytest.mark.usefixtures("transactional_db")
class TestRaces:
    """Several connections, and so no transaction around the test."""

    pytestmark = []

    @pytest.mark.postgresql
    def test_worker_puts_off_the_last_one_while_what_waits_is_held(self, items):
        (basket, (first, last)), (other, (free,)) = basket_of(), basket_of(1)
        claims = {claim.pk: claim for claim in claim_all(items)}
        with transaction.atomic():
            first.transition_perform("packed")
            both = [(claims[item.pk], Moved(ItemGraph.packed)) for item in (last, free)]
            written = begun_beside(lambda: items.record(both)).result(PATIENCE)
            assert [claim.pk for claim, _ in written.deferred] == [last.pk]
            assert [move.pk for move in written.moves] == [free.pk]
            assert written.lost == []
        assert [row(each).state for each in (basket, other)] == ["collecting", "ready"]
        assert items.record(written.deferred).moves
        assert (row(basket).state, row(basket).state_version) == ("ready", 1)

    @pytest.mark.postgresql
    @pytest.mark.parametrize("claimed", [True, False])
    def test_last_one_waits_for_the_one_before_and_moves_it(self, items, claimed):
        basket, (first, last) = basket_of()
        assert not claimed or len(claim_all(items)) == 2
        with transaction.atomic():
            first.transition_perform("packed")
            beside = begun_beside(lambda: last.transition_perform("packed"))
            assert not beside.done(), "it did not wait"
        beside.result(PATIENCE)
        assert (row(basket).state, row(basket).state_version) == ("ready", 1)

    @pytest.mark.postgresql
    def test_object_that_begins_to_wait_beside_the_last_move_goes_on(self, items):
        basket, (item,) = basket_of(1, state="filling")
        with transaction.atomic():
            basket.transition_perform("collecting")
            beside = begun_beside(lambda: item.transition_perform("packed"))
            assert not beside.done(), "it did not wait"
        beside.result(PATIENCE)
        assert row(basket).state == "ready"

    @pytest.mark.postgresql
    @pytest.mark.citus_lacks("one statement for the first record of an hour")
    def test_error_of_rows_that_may_be_the_last_ones_leaves_the_others_written(self, monkeypatch):
        items = operations_of(Item)
        (_, (last,)), (_, (first, _)) = basket_of(1), basket_of(2)
        claims = claim_all(items, 2)

        def fail(*args, **options):
            raise OperationalError("server closed the connection")

        monkeypatch.setattr(Records, "record_batch", fail)
        written = items.record([(claim, Moved(ItemGraph.packed)) for claim in claims])
        assert [move.pk for move in written.moves] == [first.pk]
        assert [claim.pk for claim, _ in written.deferred] == [last.pk]
        assert [row(each).state for each in (first, last)] == ["packed", "waiting"]
        monkeypatch.undo()
        assert items.record(written.deferred).moves

    def test_all_of_many_at_once_move_it_once(self, items):
        basket, held = basket_of(24)
        claims = claim_all(items)

        def pack(mine):
            while mine:
                written = [items.record([(claim, Moved(ItemGraph.packed))]) for claim in mine]
                assert not any(each.lost for each in written)
                mine = [claim for each in written for claim, _ in each.deferred]

        at_once(*(lambda mine=claims[start::4]: pack(mine) for start in range(4)))
        moved = row(basket)
        assert (moved.state, moved.state_version) == ("ready", 1)
        assert set(raw(Item).values_list("state", flat=True)) == {"packed"}
        assert History.objects.filter(model_label="testapp.basket").count() == 1


# What cannot be meant


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relation": "bottles"}, "Basket has no such relation; its relations are items, vans"),
        ({"in_": ("packed", "sent")}, "'sent' is not a state of ItemGraph; its states are waiting"),
    ],
)
def test_wrong_declaration_is_named_by_the_system_check(monkeypatch, changes, message):
    state = Basket.state_graph.collecting
    conditions = [(replace(condition, **changes), to) for condition, to in state.conditions]
    monkeypatch.setattr(state, "conditions", conditions)
    watches_of.cache_clear()
    try:
        (error,) = check_watches(Basket)
    finally:
        monkeypatch.undo()
        watches_of.cache_clear()
    assert error.id == "stator.E109"
    assert error.msg.startswith("BasketGraph.collecting.when_all(")
    assert message in error.msg
    assert list(check_watches(Basket)) == []


def test_related_table_without_an_index_for_few_of_many_is_warned_about(monkeypatch):
    assert list(check_watches(Basket)) == list(check_watches(Van)) == []
    monkeypatch.setattr(Item._meta, "indexes", [each for each in Item._meta.indexes if "basket" not in each.fields])
    (warning,) = check_watches(Basket)
    assert warning.id == "stator.W105"
    assert "Item, which has no index over basket and state" in warning.msg


WRONG = [
    (lambda state: state.when_all("lines", in_="packed").to(state), "in_='packed' must be a list of states"),
    (lambda state: state.when_any("lines", in_=[]).to(state), r"in_=\[\] must be a list of states"),
    (lambda state: state.when_all("a b", in_=["done"]).to(state), "takes the name of a relation"),
    (lambda state: state.when_all("lines", in_=["done"], empty=1).to(state), "empty=1 must be True or False"),
    (lambda state: state.when_all("lines", in_=["done"]), r"Wrong: first.when_all\(\) has no .to\(STATE\)"),
]


@pytest.mark.parametrize(("declare", "message"), WRONG)
def test_wrong_edge_is_refused_when_its_class_is_made(declare, message):
    first = State(externally_progressed=True)
    with pytest.raises(GraphError, match=message):
        declare(first)
        type("Wrong", (StateGraph,), {"first": first})


@pytest.mark.django_db(transaction=True)
def test_receiver_that_raises_for_the_waiting_object_is_no_fault_of_the_last_one():
    def bad(sender, **values):
        raise RuntimeError("no")

    basket, (item,) = basket_of(1)
    with connected(transitioned, bad, sender=Basket), hearing(transitioned, Item) as heard:
        summary = work(Item)
    assert (row(basket).state, row(item).state) == ("ready", "packed")
    assert (summary.handled, summary.failed, summary.lost) == ({"testapp.item": 1}, 0, 0)
    assert [move.pk for _, told in heard for move in told["moves"]] == [item.pk]
