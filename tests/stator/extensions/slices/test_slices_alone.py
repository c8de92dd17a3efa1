"""What statements for nodes need: alone in their message, by plans of the session, with statistics once a second."""

import pytest
from django.db import connection, transaction

from stator.graph.outcomes import Moved
from stator.models import Stats
from tests.processes import wait_until
from tests.stator.making import operations_of, raw
from tests.testapp.spreading import Leaf, Sheet, SheetGraph

if connection.vendor == "postgresql":
    from stator.citus.base import CITUS
    from stator.db import session as sessions
    from stator.extensions.stats.gathered import GATHERED

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.postgresql]

SETTINGS = "SELECT current_setting('plan_cache_mode'), current_setting('lock_timeout')"


@pytest.fixture(autouse=True)
def nodes(monkeypatch, transactional_db):
    monkeypatch.setattr(connection, "stator_capabilities", CITUS, raising=False)
    yield
    GATHERED.finish()
    # With what the statements have made of it.
    connection.close()
    connection.execute_wrappers.clear()


@pytest.fixture
def sent(monkeypatch):
    texts, send = [], sessions.send

    def keep(connection, statement, params):
        texts.append(statement)
        return send(connection, statement, params)

    monkeypatch.setattr(sessions, "send", keep)
    return texts


def settings():
    with connection.cursor() as cursor:
        cursor.execute(SETTINGS)
        return cursor.fetchone()


def drain(model, count):
    raw(model).bulk_create([model(shard=3) for _ in range(count)])
    part = operations_of(model).division.at(3)
    for _ in range(count):
        part.record([(claim, Moved(SheetGraph.done)) for claim in part.claim([SheetGraph.new], 1)])


def test_statement_on_a_slice_is_alone_in_its_message_and_the_session_stays_as_it_is(sent):
    usual = settings()
    drain(Leaf, 4)
    mine = [text for text in sent if "EXECUTE" in text]
    assert len(mine) == 8
    # Each is prepared with its first use.
    assert all(text.startswith(("EXECUTE", "PREPARE")) for text in mine)
    assert any(text.startswith("EXECUTE") for text in mine)
    assert raw(Leaf).filter(state="done").count() == 4
    assert settings() == usual


def test_behind_a_pooler_settings_are_of_each_statement(sent):
    sessions.session_of(connection).direct = False
    try:
        drain(Leaf, 2)
    finally:
        sessions.session_of(connection).direct = True
    mine = [text for text in sent if "WITH " in text]
    assert len(mine) == 4
    assert all("SET LOCAL jit" in text for text in mine)


def test_statistics_are_written_once_a_second_and_at_the_end():
    drain(Leaf, 3)
    GATHERED.finish()
    rows = Stats.objects.filter(model_label="testapp.leaf", to="done")
    assert sum(row.handled for row in rows) == 3
    drain(Leaf, 2)
    # Nobody asks for it.
    wait_until(lambda: sum(row.handled for row in rows.all()) == 5)


def test_statistics_of_a_transaction_that_is_rolled_back_are_forgotten():
    raw(Sheet).bulk_create([Sheet(shard=3)])
    part = operations_of(Sheet).division.at(3)
    claims = part.claim([SheetGraph.new], 1)
    with transaction.atomic():
        part.record([(claim, Moved(SheetGraph.done)) for claim in claims])
        transaction.set_rollback(True)
    GATHERED.finish()
    assert not Stats.objects.filter(model_label="testapp.sheet").exists()
