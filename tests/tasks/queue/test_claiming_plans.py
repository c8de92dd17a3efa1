"""PostgreSQL's plan for claims of programs when its statistics are stale."""

import pytest
from django.db import connection

from stator.db import postgresql, session
from tasks.models import Task
from tests.stator.making import raw
from tests.tasks.making import make_queue

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

TABLES = ["tasks_task", "tasks_run"]


@pytest.fixture
def of_an_empty_table():
    """Have the planner believe that the tables are as good as empty, as before thousands were published at once."""
    with connection.cursor() as cursor:
        yield lambda: (
            cursor.execute("UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname = ANY(%s)", [TABLES]),
            cursor.execute("DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])", [TABLES]),
        )
        cursor.execute(f"ANALYZE {', '.join(TABLES)}")


@pytest.fixture
def plans(monkeypatch):
    """The plans, with what came of them, of all statements that lock tasks to be claimed, and of heartbeats."""
    send, plans = postgresql.send, []

    def explain(connection, statement, params):
        if "tasks_run" in statement and ("SKIP LOCKED" in statement or "WITH done" in statement):
            # Behind what is set for it, and undone, because a claim in one statement has taken the tasks then.
            at_once = any(f"WITH {name}" in statement for name in ("picked", "near", "done"))
            at = statement.index("WITH" if at_once else "SELECT")
            explained = f"{statement[:at]}EXPLAIN (ANALYZE) {statement[at:]}"
            if not connection.in_atomic_block:
                explained = f"BEGIN; {explained}; ROLLBACK"
            explained = send(connection, explained, params)
            plans.append("\n".join(line for (line,) in explained))
        return send(connection, statement, params)

    for module in (postgresql, session):
        monkeypatch.setattr(module, "send", explain)
    return plans


@pytest.mark.parametrize("exclusive_key", ["", "title"])
def test_each_candidate_is_asked_for_by_itself(plans, of_an_empty_table, exclusive_key):
    """A join with the parts of shared tasks once read the whole table for each candidate: hours for ten thousand."""
    queue = make_queue(exclusive_key=exclusive_key)
    queue.publish_many({"action": "a", "metadata": {"title": str(number % 7)}} for number in range(300))
    of_an_empty_table()
    assert len(queue.claim(worker="bot-1", limit=5)) == 5
    [plan] = plans
    outer, _, asked = plan.partition("SubPlan")
    assert "Join" not in outer, plan
    assert "Nested Loop" not in outer, plan
    # None of the tasks is part of a shared one, so for none it is asked who had the other parts.
    assert "never executed" in asked, plan
    assert Task.objects.filter(state_claim=None).count() == 295


@pytest.mark.citus_lacks("plans that EXPLAIN shows as PostgreSQL does")
@pytest.mark.parametrize("title", ["of half", "of few"])
def test_what_has_metadata_is_not_looked_for_in_all_that_waits(plans, monkeypatch, of_an_empty_table, title):
    """Metadata of many tasks is found at the head of the line; metadata of few, by an index of waiting tasks."""
    monkeypatch.setattr("stator.db.sql.FIRST_ROWS", 50)
    queue = make_queue()
    titles = ["of half" if number % 2 else "of few" if number > 980 else "other" for number in range(1000)]
    queue.publish_many({"action": "a", "priority": n, "metadata": {"title": t}} for n, t in enumerate(titles))
    # Of those that have ended, which are kept for a time, many have it.
    raw(Task).filter(metadata={"title": "other"}).update(
        state="completed", state_ready=False, metadata={"title": "of few"}
    )
    if title == "of half":
        of_an_empty_table()
    else:
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {', '.join(TABLES)}")
    found = queue.claim(worker="bot-1", limit=5, metadata={"title": title})
    assert [held.task.priority for held in found] == [n for n, each in enumerate(titles) if each == title][:5]
    assert "Index Scan using tasks_task_ready_in_queue" in plans[0]
    assert "Tid Scan" in plans[0]
    if title == "of half":
        assert len(plans) == 1
    else:
        # Claims in one statement, and then in several, search the head of the line first.
        [_, first, last] = plans
        assert "Tid Scan" in first
        assert "Bitmap Index Scan on tasks_task_ready_searched" in last, last
        assert "tasks_task_ready_in_queue" not in last


def test_search_by_metadata_reads_the_index_of_tasks_that_have_some():
    queue = make_queue()
    queue.publish_many({"action": "a"} for _ in range(2000))
    found = queue.publish("a", metadata={"title": "one"})
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {', '.join(TABLES)}")
    sought = Task.objects.with_metadata({"title": "one"})
    assert "Index Scan on tasks_task_searched" in sought.explain()
    assert [task.pk for task in sought] == [found.task.pk]
