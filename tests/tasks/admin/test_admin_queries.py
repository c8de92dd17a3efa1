"""Each page of the admin of queues takes a fixed number of statements, however many tasks there are."""

import re
from typing import Any

import pytest
from django.contrib.admin import ModelAdmin
from django.db import connection
from django.test import Client

from stator.models import move_rows
from tasks.admin import QueueAdmin
from tasks.models import Consumer, Queue, Run, Schedule, Task
from tests.queries import statements, unbounded
from tests.stator.making import ago, raw
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db

ADMIN = "/admin/tasks/"
# Of each; fewer and more than a page has.
FEW, MANY, PAGE = 1, 12, 10


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for model_admin in (ModelAdmin, QueueAdmin):
        monkeypatch.setattr(model_admin, "list_per_page", PAGE)


def fill(count: int) -> None:
    """So many tasks of each status in one queue, with their claims, and as many queues, schedules and consumers."""
    queue = make_queue(f"encode-{count}")
    queue.publish_many([{"action": "resize", "key": f"{number}"} for number in range(6 * count)])
    queue.publish_many([{"action": "resize", "invisible_for": 500} for _ in range(count)])
    queue.publish_many([{"action": "resize", "priority": -1, "worker_count": 2} for _ in range(count)])
    queue.claim(worker="bot-1", limit=5 * count)
    held = list(queue.tasks.filter(state_claim__isnull=False, whole=None).order_by("pk").values_list("pk", flat=True))
    for name, keys in (("completed", held[:count]), ("errored", held[count : 2 * count])):
        move_rows(raw(Task).filter(pk__in=keys), name, reason="for a test")
        Run.objects.filter(task__in=keys).update(ended=ago(5), outcome="failed", reason="no such disk")
    for number in range(count):
        make_queue(f"queue {count} {number}")
        Schedule.objects.create(name=f"nightly {count} {number}", queue=queue, action="resize", period=60, entity="7")
        Consumer.objects.create(name=f"bot {count} {number}", prefix=f"{count}-{number}")


def first(model: Any, **columns: Any) -> int:
    return int(model._base_manager.filter(**columns).order_by("pk")[0].pk)


def count_of(client: Client, url: str) -> int:
    """How many statements a page takes once what is cached per process is."""
    client.get(ADMIN + url)
    asked = statements(lambda: client.get(ADMIN + url))
    assert not unbounded(asked)
    return len(asked)


@pytest.mark.parametrize(
    ("url", "number"),
    [
        # Session and user, pauses, workers, a bounded count, queues to filter by, the rows; then who holds those that
        # are held, what is said of those that have ended (two), and of those that are shared.
        ("task/", 12),
        ("task/?status=invisible", 9),
        ("task/?status=pending", 11),
        ("task/?status=running", 12),
        ("task/?status=completed", 9),
        ("task/?status=canceled", 7),
        ("task/?status=errored", 9),
        ("task/?condition=leased", 9),
        ("task/?q=resize", 16),
        ("queue/", 7),
        ("run/", 4),
        ("run/?q=bot-1", 5),
        ("schedule/", 6),
        ("schedule/?q=nightly", 8),
        ("schedule/?condition=overdue", 10),
        ("consumer/", 3),
    ],
)
def test_list_takes_a_fixed_number_of_statements(admin_client: Client, url: str, number: int) -> None:
    """One more where there is more than one page, or a filter; less where the first page has not rows of every kind."""
    fill(FEW)
    assert count_of(admin_client, url) == number
    fill(MANY)
    assert count_of(admin_client, url) <= number + 2


@pytest.mark.parametrize(
    ("model", "columns", "page", "number"),
    [
        (Task, {"state": "pending", "state_ready": True}, "change", 22),
        (Task, {"state": "pending", "state_claim__isnull": False}, "change", 17),
        (Task, {"state": "shared"}, "change", 19),
        (Task, {"state": "completed"}, "change", 16),
        (Task, {"state": "errored"}, "change", 17),
        (Task, {"state": "errored"}, "stator", 16),
        (Task, {"state": "errored"}, "history", 6),
        (Queue, {}, "change", 20),
        (Run, {}, "change", 4),
        (Schedule, {}, "change", 12),
        (Schedule, {}, "stator", 11),
        (Consumer, {}, "change", 5),
    ],
)
def test_page_takes_a_fixed_number_of_statements(
    admin_client: Client, model: Any, columns: dict[str, Any], page: str, number: int
) -> None:
    fill(FEW)
    url = f"{model._meta.model_name}/{first(model, **columns)}/{page}/"
    assert count_of(admin_client, url) == number
    fill(MANY)
    assert count_of(admin_client, url) == number


@pytest.mark.parametrize(
    ("url", "number"), [("task/add/", 3), ("queue/add/", 2), ("schedule/add/", 2), ("consumer/add/", 3)]
)
def test_form_takes_a_fixed_number_of_statements(admin_client: Client, url: str, number: int) -> None:
    fill(MANY)
    assert count_of(admin_client, url) == number


@pytest.mark.parametrize(("name", "number"), [("task_requeue", 15), ("task_cancel", 17), ("stator_move", 16)])
def test_confirmation_takes_a_fixed_number_of_statements(admin_client: Client, name: str, number: int) -> None:
    def ask() -> Any:
        given = {"action": name, "index": "0", "select_across": "1", "_selected_action": [task]}
        return admin_client.post(f"{ADMIN}task/?queue__id__exact={queue}", given)

    fill(FEW)
    queue, task = first(Queue), first(Task)
    ask()
    few = statements(ask)
    assert not unbounded(few)
    assert len(few) == number
    fill(MANY)
    many = statements(ask)
    assert not unbounded(many)
    assert len(many) <= number + 1


@pytest.mark.postgresql
@pytest.mark.parametrize("status", ["pending", "running", "errored"])
def test_few_tasks_of_a_status_among_many_are_found_by_indexes(status: str) -> None:
    """Not by reading all there are, as for counting them."""
    queue = make_queue()
    ended = [Task(queue=queue, action="resize", state="completed", state_ready=False) for _ in range(5000)]
    raw(Task).bulk_create(ended)
    make_task(queue, status)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tasks_task")
    found = Task.objects.with_status(status)
    assert found.count() == 1
    plan = found.values("pk")[:10_001].explain(analyze=True)
    assert not re.search(r"Seq Scan on tasks_task.*loops=[1-9]", plan), plan
