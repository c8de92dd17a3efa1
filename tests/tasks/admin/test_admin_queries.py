"""No page of the admin of queues takes more statements when there are more tasks."""

import re
from typing import Any

import pytest
from django.contrib.admin import ModelAdmin
from django.db import connection
from django.test import Client

from stator.models import move_rows
from tasks.admin import QueueAdmin
from tasks.models import Consumer, Queue, Run, Schedule, Task
from tasks.rows.tasks import NO_PART
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
    shared: dict[str, object] = {"action": "resize", "priority": -1}
    shared["worker_count"] = 2  # tasks.extensions.shared
    queue.publish_many([shared] * count)
    queue.claim(worker="bot-1", limit=5 * count)
    held = list(queue.tasks.filter(NO_PART, state_claim__isnull=False).order_by("pk").values_list("pk", flat=True))
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
    """How many statements a page takes."""
    asked = statements(lambda: client.get(ADMIN + url))
    assert not unbounded(asked), url
    return len(asked)


LISTS = [
    "task/", "task/?status=errored", "task/?condition=leased", "task/?q=resize", "queue/", "run/?q=bot-1",
    "schedule/?condition=overdue", "consumer/",
]  # fmt: skip
FORMS = ["task/add/", "schedule/add/"]
PAGES: list[tuple[Any, dict[str, Any], str]] = [
    (Task, {"state": "pending", "state_claim__isnull": False}, "change"),
    *((Task, {"state": "errored"}, page) for page in ("change", "history")),
    *((model, {}, "change") for model in (Queue, Schedule)),
]


def test_list_and_page_take_no_more_statements_for_more_rows(admin_client: Client) -> None:
    """A list one more where it has more than one page, or a filter; less where its first has not rows of every kind."""
    fill(FEW)
    pages = [f"{model._meta.model_name}/{first(model, **columns)}/{page}/" for model, columns, page in PAGES]
    for url in (urls := [*LISTS, *pages, *FORMS]):
        # What is cached per process is from here on.
        assert admin_client.get(ADMIN + url).status_code == 200
    few = {url: count_of(admin_client, url) for url in urls}
    fill(MANY)
    many = {url: count_of(admin_client, url) for url in urls}
    assert {url: few[url] for url in [*pages, *FORMS]} == {url: many[url] for url in [*pages, *FORMS]}
    assert {url: (few[url], many[url]) for url in LISTS if many[url] > few[url] + 2} == {}


@pytest.mark.parametrize("name", ["task_requeue", "stator_move"])
def test_confirmation_takes_no_more_statements_for_more_rows(admin_client: Client, name: str) -> None:
    def ask() -> Any:
        given = {"action": name, "index": "0", "select_across": "1", "_selected_action": [task]}
        return admin_client.post(f"{ADMIN}task/?queue__id__exact={queue}", given)

    fill(FEW)
    queue, task = first(Queue), first(Task)
    ask()
    few = statements(ask)
    assert not unbounded(few)
    fill(MANY)
    many = statements(ask)
    assert not unbounded(many)
    assert len(many) <= len(few) + 1


@pytest.mark.postgresql
def test_few_tasks_of_a_status_among_many_are_found_by_indexes() -> None:
    """Not by reading all there are, as for counting them."""
    queue = make_queue()
    ended = [Task(queue=queue, action="resize", state="completed", state_ready=False) for _ in range(1500)]
    raw(Task).bulk_create(ended)
    # In this order, for those that run are claimed.
    statuses = ("errored", "running", "pending")
    for status in statuses:
        make_task(queue, status)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tasks_task")
    for status in statuses:
        found = Task.objects.with_status(status)
        assert found.count() == 1
        plan = found.values("pk")[:10_001].explain(analyze=True)
        assert not re.search(r"Seq Scan on tasks_task.*loops=[1-9]", plan), plan
