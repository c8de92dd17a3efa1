"""The section about queues in the overview of the admin."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from tasks.models import Queue, Task
from tests.stator.making import ago, raw
from tests.tasks.admin.pages import person

pytestmark = [pytest.mark.django_db, pytest.mark.needs("overview")]

URL = "/admin/stator/overview/?model=tasks.Task"


def client_with(*codenames: str) -> Client:
    client = Client()
    client.force_login(person("view_overview", *codenames))
    return client


def section(client: Client) -> str:
    found = re.search(r'id="stator-queues".*?</section>', client.get(URL).text, re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", found[0])).split()) if found else ""


def queue_with(name: str, count: int, **columns: Any) -> Queue:
    queue = Queue.objects.create(name=name)
    queue.publish_many([{"action": "resize", "data": 7} for _ in range(count)])
    if columns:
        raw(Task).filter(queue=queue).update(**columns)
    return queue


def test_tells_what_waits_and_since_when_and_who_works() -> None:
    queue = queue_with("encode", 3, state_changed=ago(365))
    queue_with("mail", 0)
    client = client_with("view_queue")
    assert re.search(r"encode 3 6 m \d+ s — 0 0 — mail 0 — — 0 0 —", section(client))
    queue.claim(worker="bot-1")
    assert re.search(r"encode 2 6 m \d+ s — 1 1", section(client))


def test_paused_queues_come_first_with_who_and_why() -> None:
    queue_with("encode", 3)
    queue_with("zebra", 0).pause(publish=True, claim=True, reason="<b>strike</b>", author="anna", seconds=600)
    client = client_with("view_queue")
    told = section(client)
    assert "publishing and claiming paused by anna until" in told
    assert told.index("zebra") < told.index("encode")
    assert "<b>strike" not in client.get(URL).text


def test_leads_to_the_tasks_for_who_may_view_them() -> None:
    queue = queue_with("encode", 1)
    client = client_with("view_task")
    address = f"/admin/tasks/task/?queue__id__exact={queue.pk}"
    assert f'href="{address}"' in client.get(URL).text
    assert client.get(address).status_code == 200


def test_is_not_for_everybody() -> None:
    queue_with("encode", 1)
    assert section(client_with()) == ""
