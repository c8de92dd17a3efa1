"""``stator doctor`` on a cluster: it looks at every node."""

import pytest
from django.db import connections

from stator.extensions.problems.commands.doctor import examine
from stator.rows.problem import OK
from tests.citus.conftest import run
from tests.citus.test_migrations import migrate
from tests.processes import wait_until
from tests.testapp.basic import Step

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]


def test_each_node_is_examined_and_named(schema: str) -> None:
    migrate(schema)
    found = {one.code: one for one in examine(schema, [Step])}
    for check in ("clock", "server", "transactions", "locks", "snapshots", "dead rows", "replication"):
        assert found[check].sentence.startswith("node "), check
        assert found[check].level == OK, check


def test_dead_rows_of_a_table_are_found_on_its_node(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(schema)
    monkeypatch.setattr("stator.extensions.problems.commands.doctor.postgresql.DEAD_ROWS", 5)
    Step.objects.using(schema).bulk_create(Step(name=str(number)) for number in range(100))
    Step.objects.using(schema).all().delete()
    run(schema, "SELECT run_command_on_all_nodes('SELECT pg_stat_force_next_flush()')")

    def told() -> str:
        return " ".join(one.sentence for one in examine(schema, [Step]) if one.code == "dead rows")

    wait_until(lambda: "testapp_step_" in told())


def test_wait_for_a_lock_is_found_on_its_node(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(schema)
    monkeypatch.setattr("stator.extensions.problems.commands.doctor.postgresql.LONG_WAIT", -1.0)
    change = f"UPDATE testapp_step SET name = '' WHERE id = {Step.objects.using(schema).create().pk}"
    holding, waiting = connections[schema].copy(), connections[schema].copy()

    def told() -> str:
        return " ".join(one.sentence for one in examine(schema, [Step]) if one.code == "locks")

    try:
        holding.cursor().execute(f"BEGIN; {change}")
        waiting.ensure_connection()
        waiting.connection.pgconn.send_query(change.encode())
        wait_until(lambda: "for a lock of session " in told())
        assert told().startswith("node ")
    finally:
        holding.close()
        waiting.close()
