"""Models whose ``spread`` is a field of the project: the values with rows are found, and each has its turn."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from django.db import connection

from stator.capabilities import POSTGRESQL
from stator.db import interface
from stator.extensions.slices import slices
from stator.graph.outcomes import Moved
from stator.migration_operations import Distribute
from stator.models import History
from stator.rows.claimable import Crashes
from stator.runner import StatorRunner
from stator.worker import duties
from tests.stator.db.test_postgresql_plans import explaining
from tests.stator.dividing import while_divided
from tests.stator.making import ago, expire, operations_of, raw, row
from tests.testapp.spreading import Bill, Remark, SheetGraph, Tenant

pytestmark = [
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.postgresql,
    pytest.mark.citus_lacks("foreign keys of a distributed table to an ordinary one"),
]

partitions = while_divided(
    Distribute("bill", by="tenant", partitions=4), Distribute("remark", by="author", partitions=4)
)


@pytest.fixture
def on_nodes(monkeypatch):
    """As on Citus: no statement takes rows of several values."""
    monkeypatch.setattr(interface.Operations, "capabilities", replace(POSTGRESQL, has_nodes=True))


@pytest.fixture
def operations(request):
    if getattr(request, "param", "") == "nodes":
        request.getfixturevalue("on_nodes")
    return operations_of(Bill)


either = pytest.mark.parametrize("operations", ["one server", "nodes"], indirect=True)


def tenants(count):
    return Tenant.objects.bulk_create([Tenant() for _ in range(count)])


def bills(tenant, count=1, **columns):
    made = raw(Bill).bulk_create([Bill(tenant=tenant) for _ in range(count)])
    if columns:
        raw(Bill).filter(tenant=tenant).update(**columns)
    return {bill.pk for bill in made}


def claim(operations, limit=100, state=SheetGraph.new):
    return operations.claim([state], limit)


def perform(duty, operations):
    duties.perform(duty, operations, stopped=lambda: False)


def states(model=Bill):
    return Counter(raw(model).values_list("state", flat=True))


def done(claims):
    return [(each, Moved(SheetGraph.done)) for each in claims]


@either
def test_rows_of_all_values_are_claimed_and_recorded_each_once(operations):
    made = set().union(*(bills(tenant, 2) for tenant in tenants(60)))
    seen = []
    while claims := claim(operations, 20):
        seen += [each.pk for each in claims]
        operations.record(done(claims))
    assert len(seen) == 120
    assert set(seen) == made
    assert states() == {"done": 120}
    assert History.objects.filter(to="done").count() == 120


@either
def test_every_value_has_its_turn_however_many_rows_others_have(operations):
    many, *others = tenants(36)
    bills(many, 150)
    for tenant in others:
        bills(tenant)
    late = tenants(1)[0]
    for turn in range(10):
        claims = claim(operations, 10)
        if turn == 5:
            bills(late)
        # Of one value in each claim, none takes more than the rest of it.
        assert len(claims) == 10
    assert not raw(Bill).exclude(tenant=many).filter(state_claim=None).exists()


def test_slices_are_made_on_demand_and_forgotten(operations, monkeypatch):
    monkeypatch.setattr(slices, "MAX_SLICES", 3)
    for tenant in tenants(10):
        bills(tenant)
    claims = claim(operations)
    operations.stop()
    assert not any(each.may_begin for each in claims)
    assert operations.division.of_value.cache_info().currsize == 3
    operations.record(done(claims))
    assert states() == {"done": 10}


def test_claim_ends_after_many_values_without_a_row(on_nodes, monkeypatch):
    operations = operations_of(Bill)
    monkeypatch.setattr("stator.extensions.slices.slices.MAX_EMPTY", 5)
    for tenant in tenants(12):
        bills(tenant)
    asked = []
    monkeypatch.setattr(operations.division, "of_value", part_of_nothing(operations, asked))
    assert not claim(operations)
    assert len(asked) == 5
    assert not claim(operations)
    assert len(set(asked)) == 10


def part_of_nothing(operations, asked):
    of_value = operations.division.of_value

    def part(value):
        asked.append(value)
        found = of_value(value)
        found.claim_together = lambda *args, **kwargs: []
        return found

    return part


NODE_AWAY = "DO $$ BEGIN RAISE connection_failure USING MESSAGE = 'connection to the remote node'; END $$"


def test_while_a_node_is_away_the_values_that_were_met_are_tried(on_nodes, monkeypatch):
    operations, known = operations_of(Bill), tenants(3)
    for tenant in known:
        bills(tenant)
    operations.record(done(claim(operations)))
    for tenant in known:
        bills(tenant, state_ready=False, state_next_attempt=ago(1))

    def fail(*args, **kwargs):
        with connection.cursor() as cursor:
            cursor.execute(NODE_AWAY)

    def meet(execute, sql, params, many, context):
        return fail() if "SELECT DISTINCT" in sql else execute(sql, params, many, context)

    # Statements that meet every node.
    monkeypatch.setattr(operations, "fetch", fail)
    with connection.execute_wrapper(meet):
        perform(duties.MARK_READY, operations)
        assert len(claim(operations, 2)) == 2
        assert len(claim(operations)) == 1
        raw(Bill).filter(state="new").update(state_locked_until=ago(1))
        perform(duties.REAP, operations)
        assert len(operations.claim([SheetGraph.new], 9, crashes=Crashes.FEW)) == 3


@either
def test_chores_take_rows_of_all_values(operations):
    for tenant in tenants(30):
        bills(tenant, 2, state_ready=False, state_next_attempt=ago(5))
    perform(duties.MARK_READY, operations)
    assert raw(Bill).filter(state_ready=True).count() == 60
    claims = claim(operations)
    expire(*(each.instance for each in claims[:40]))
    perform(duties.REAP, operations)
    assert raw(Bill).filter(state_crashes=1, state_claim=None).count() == 40
    assert len(operations.claim([SheetGraph.new], 100, crashes=Crashes.FEW)) == 40
    raw(Bill).update(state="left", state_ready=False, state_claim=None, state_changed=ago(4000))
    for duty in duties.duties_of(duties.When.PASS):
        perform(duty, operations)
    assert states() == {"done": 60}


def test_claim_goes_on_from_the_first_value_and_rows_of_one_without_an_answer_are_released(on_nodes, operations):
    first, *others = tenants(20)
    for tenant in others:
        bills(tenant)
    token = claim(operations)[0].token
    bills(first)
    assert len(claim(operations)) == 1
    assert not claim(operations)
    assert operations.release_token(token) == 19


@either
def test_row_that_gets_another_value_while_it_is_claimed_is_recorded_once(operations):
    first, second = tenants(2)
    bills(first, 3)
    claims = claim(operations)
    raw(Bill).filter(pk=claims[0].pk).update(tenant=second)
    written = operations.record(done(claims))
    assert (len(written.moves), written.lost, written.deferred) == (3, [], [])
    assert states() == {"done": 3}
    assert History.objects.filter(to="done").count() == 3


def test_row_that_gets_another_value_and_another_claim_is_lost(operations):
    first, second = tenants(2)
    bills(first)
    [mine] = claim(operations)
    expire(mine.instance)
    raw(Bill).update(tenant=second)
    perform(duties.REAP, operations)
    [theirs] = operations_of(Bill).claim([SheetGraph.new], 1, crashes=Crashes.FEW)
    assert operations.record(done([mine])).lost == [mine]
    assert row(mine.instance).state_claim == theirs.token


def test_lease_goes_on_when_its_row_gets_another_value(operations):
    first, second = tenants(2)
    bills(first)
    [mine] = claim(operations)
    raw(Bill).update(tenant=second)
    assert mine.still_mine()
    for _ in range(2):
        assert not mine.operations.renew([mine])
    assert mine.operations.part == second.pk
    assert mine.extend(50)
    until = row(mine.instance).state_locked_until
    assert not mine.operations.renew([mine])
    assert row(mine.instance).state_locked_until > until
    raw(Bill).update(state_claim=None, state_locked_until=None)
    assert mine.operations.renew([mine]) == {id(mine)}


@pytest.mark.parametrize("before", [True, False])
def test_handler_in_a_transaction_may_give_its_row_another_value(monkeypatch, before):
    first, second = tenants(2)
    [pk] = bills(first, state="sealed")

    def change(*args):
        raw(Bill).filter(pk=pk).update(tenant=second)

    if before:
        [mine] = claim(operations_of(Bill), state=SheetGraph.sealed)
        change()
        with mine.operations.transaction():
            assert mine.operations.lock_claimed([mine]) == [mine]
    else:
        monkeypatch.setattr(SheetGraph, "meanwhile", change)
        StatorRunner([Bill]).run_single_cycle()
        assert states() == {"done": 1}
        assert History.objects.filter(to="done").count() == 1


def test_texts_are_found_in_the_order_of_their_column(monkeypatch):
    monkeypatch.setattr(slices, "MAX_FOUND", 3)
    authors = ["", "B", "a", "it's", "ä", "%s", 'q"', "Z", "a" * 20]
    raw(Remark).bulk_create([Remark(author=author) for author in authors for _ in range(2)])
    operations = operations_of(Remark)
    taken = Counter()
    while claims := claim(operations, 4):
        operations.record(done(claims))
        taken.update(each.operations.part for each in claims)
    assert taken == dict.fromkeys(authors, 2)
    assert states(Remark) == {"done": 18}


def test_values_are_found_along_the_index(monkeypatch):
    operations = operations_of(Bill)
    for tenant in tenants(5):
        bills(tenant, 5)
    # A session prepares what it has sent some times, and EXPLAIN shows no statement that is just being prepared.
    connection.close()
    with explaining("testapp_bill", monkeypatch) as explained:
        operations.division._turns._find(slices.Round(), [SheetGraph.new])
    [plan] = explained.plans
    assert "Seq Scan" not in plan
    assert not re.search(r"Sort  \(", plan)
