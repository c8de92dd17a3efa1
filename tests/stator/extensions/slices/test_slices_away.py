"""Nodes that do not answer, as far as one ordinary server can be several: ``tests/citus`` has a node that hangs."""

from uuid import uuid4

import pytest
from django.db import OperationalError, connection

from stator.db.locks import limit_waits
from stator.rows.spread import SPREAD
from tests.processes import wait_until
from tests.stator.making import operations_of, raw
from tests.testapp.spreading import Sheet, SheetGraph

if connection.vendor == "postgresql":
    import psycopg

    from stator.citus.base import CITUS
    from stator.citus.waiting import NodeSilent, watched
    from stator.citus.watching import WATCH
    from stator.extensions.slices import away

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.postgresql]


class Impatient:
    """Gives up whatever takes longer than a moment."""

    def is_in_vain(self, waited):
        return "node one:5432 does not answer" if waited > 0.05 else ""


@pytest.fixture
def driver():
    given = {**connection.get_connection_params(), "cursor_factory": None}
    with psycopg.connect(**{name: value for name, value in given.items() if value is not None}) as made:
        watched(made)
        pid = made.info.backend_pid
        yield made
    with connection.cursor() as cursor:
        # The server does not notice that nobody waits any more.
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def test_statement_that_waits_for_a_silent_node_is_given_up_and_its_connection_closed(driver):
    assert driver.execute("SELECT 1 FROM pg_sleep(0.2)").fetchall() == [(1,)]
    before = WATCH.set(Impatient())
    try:
        assert driver.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(NodeSilent, match="node one:5432 does not answer"):
            driver.execute("SELECT pg_sleep(60)")
    finally:
        WATCH.reset(before)
    assert driver.closed


@pytest.fixture
def operations(monkeypatch):
    """Operations of a worker on slices whose statements are those for nodes."""
    monkeypatch.setattr(connection, "stator_capabilities", CITUS, raising=False)
    made = operations_of(Sheet)
    limit_waits([made])
    yield made
    # The statements have made settings of the session's own.
    connection.close()
    connection.execute_wrappers.clear()


@pytest.fixture
def nodes(monkeypatch):
    """Nodes of which one, with the slices of even numbers, is silent, until it is not."""
    nodes = away.Nodes(connection.alias)
    monkeypatch.setattr(away, "nodes_of", lambda alias: nodes)
    one, other = away.NodeAddress("one", 5432), away.NodeAddress("two", 5432)
    monkeypatch.setattr(away, "_place", lambda connection, slot: other if slot.value % 2 else one)
    nodes.silent = frozenset({one})
    yield nodes
    nodes.silent = frozenset()
    nodes.stop()


def test_slices_of_a_silent_node_rest_without_being_asked_and_others_go_on(operations, nodes):
    raw(Sheet).bulk_create([Sheet(shard=shard) for shard in SPREAD])
    claimed = operations.claim([SheetGraph.new], 100)
    assert {claim.operations.part for claim in claimed} == {shard for shard in SPREAD if shard % 2}
    with pytest.raises(OperationalError, match="node one:5432 does not answer"):
        operations.division.at(2).fetch("SELECT 1", ())
    # Pauses and the table of workers are on no node.
    assert operations.fetch("SELECT 1", ()) == [(1,)]
    nodes.silent = frozenset()
    assert {claim.operations.part for claim in operations.claim([SheetGraph.new], 100)} == set(SPREAD[::2])


def test_nodes_that_answer_again_are_asked_for_no_longer(nodes, monkeypatch):
    answers = {away.NodeAddress("one", 5432): False}
    monkeypatch.setattr(away, "answers_of", lambda alias: answers)
    monkeypatch.setattr(away, "ASKED_EVERY", 0.01)
    nodes.silent = frozenset()
    nodes.ask()
    wait_until(lambda: nodes.silent)
    answers[away.NodeAddress("one", 5432)] = True
    wait_until(lambda: not nodes.silent)


def test_rows_of_an_abandoned_claim_are_given_back_when_its_node_does_it_after_all(operations, monkeypatch):
    raw(Sheet).bulk_create([Sheet(shard=3)])
    part = operations.division.at(3)
    lost, claim_together = [], part.claim_together

    def hang(*args, token, **options):
        lost.append((args, token, options))
        raise OperationalError from NodeSilent("node one:5432 does not answer")

    monkeypatch.setattr(part, "claim_together", hang)
    token = uuid4()
    assert not operations.claim([SheetGraph.new], 10, token=token)
    [(args, token, options)] = lost
    assert claim_together(*args, token=token, **options)
    assert raw(Sheet).filter(state_claim=token).count() == 1

    def is_released():
        operations.division.settle()
        return not raw(Sheet).filter(state_claim=token).exists()

    wait_until(is_released)
    assert raw(Sheet).values_list("state_ready", "state_attempts").get() == (True, 0)
