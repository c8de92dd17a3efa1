"""What PostgreSQL makes of a claim of programs when its statistics are of another time."""

import pytest
from django.db import connection

from tasks.models import Task
from tests.tasks.making import make_queue

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

TABLES = ["tasks_task", "tasks_run"]


@pytest.fixture
def of_an_empty_table():
    """Have the planner believe that the tables are as good as empty, as before thousands were published at once."""
    with connection.cursor() as cursor:
        yield lambda: (
            cursor.execute("UPDATE pg_class SET reltuples = 1 WHERE relname = ANY(%s)", [TABLES]),
            cursor.execute("DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])", [TABLES]),
        )
        cursor.execute(f"ANALYZE {', '.join(TABLES)}")


@pytest.mark.parametrize("exclusive_key", ["", "title"])
def test_each_candidate_is_asked_for_by_itself(monkeypatch, of_an_empty_table, exclusive_key):
    """A join with the parts of shared tasks once read the whole table for each candidate: hours for ten thousand."""
    from stator.db import postgresql

    queue = make_queue(exclusive_key=exclusive_key)
    queue.publish_many({"action": "a", "metadata": {"title": str(number % 7)}} for number in range(300))
    of_an_empty_table()
    send, plans = postgresql.send, []

    def explain(connection, statement, params):
        if "tasks_run" in statement and "SKIP LOCKED" in statement:
            at = statement.index('SELECT "tasks_task"')
            explained = send(connection, f"{statement[:at]}EXPLAIN (ANALYZE) {statement[at:]}", params)
            plans.append("\n".join(line for (line,) in explained))
        return send(connection, statement, params)

    monkeypatch.setattr(postgresql, "send", explain)
    assert len(queue.claim(worker="bot-1", limit=5)) == 5
    [plan] = plans
    outer, _, asked = plan.partition("SubPlan")
    assert "Join" not in outer, plan
    assert "Nested Loop" not in outer, plan
    # None of the tasks is part of a shared one, so for none it is asked who had the other parts.
    assert "never executed" in asked, plan
    assert Task.objects.filter(state_claim=None).count() == 295
