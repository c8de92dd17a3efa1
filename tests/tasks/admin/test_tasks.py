"""Tasks in the admin: their list, their pages, and publishing."""

import re

import pytest
from django.utils.html import escape

from stator.admin import filters, read_only
from tasks.models import Task
from tests.stator.making import ago, change
from tests.tasks.admin.pages import TASKS, page, text_of
from tests.tasks.making import STATUSES, claim_one, make_queue, make_task, pass_time

pytestmark = pytest.mark.django_db


def test_search_finds_keys_and_numbers_however_old_and_actions_among_the_newest(admin_client, monkeypatch):
    queue, other = make_queue(), make_queue("mail")
    tasks = [queue.publish("resize", key=f"key {number}").task for number in range(4)]
    tasks.append(other.publish("resize", key="key 0").task)
    monkeypatch.setattr(read_only, "SEARCHED", 1)
    for words, found in (
        ("key 0", [tasks[0], tasks[4]]),
        (tasks[1].pk, [tasks[1]]),
        ("RESI", tasks[3:]),
        ("9" * 18, []),
        ("\N{SUPERSCRIPT TWO}", []),
    ):
        shown = admin_client.get(TASKS, {"q": words}).context["cl"].queryset
        assert set(shown) == set(found), words


@pytest.mark.parametrize("few", [0, 2000])
def test_status_filter_has_the_tasks_of_that_status(admin_client, monkeypatch, few):
    monkeypatch.setattr(filters, "FEW", few)
    queue = make_queue()
    for status in ("running", "completed", "errored", "canceled", "invisible", "pending"):
        make_task(queue, status)
    due = queue.publish("resize", invisible_for=60).task
    change(due, state_next_attempt=ago(1))
    queue.publish("resize", worker_ids=["a", "b"], worker_count=2)
    for status in STATUSES:
        shown = admin_client.get(TASKS, {"status": status}).context["cl"].queryset
        meant = [task for task in Task.objects.all() if task.status == status]
        assert meant
        assert set(shown) == set(meant), status


def test_page_of_a_task_says_why_it_is_not_moving(admin_client):
    queue = make_queue()
    task = make_task(queue)
    queue.pause(claim=True, author="ann", reason="deploying")
    text = text_of(admin_client.get(page(task)))
    assert "Nothing of queue encode is claimed: paused by ann (deploying)." in text
    assert text.index("paused by ann") < text.index("What happened")


def test_page_of_a_task_says_that_no_worker_is_eligible(admin_client):
    queue = make_queue()
    task = make_task(queue)
    claim_one(queue).release("disk is full")
    assert "No eligible worker: all 1 that ask for work (bot-1)" in text_of(admin_client.get(page(task)))


def test_page_of_a_dead_letter_says_what_to_do_and_what_went_wrong(admin_client):
    task = make_task(make_queue(), "errored")
    text = text_of(admin_client.get(page(task)))
    assert "It ended without success and needs an operator. The last error: tasks.Failed: no such image" in text
    assert "After you have fixed it, requeue the task." in text
    assert "move it to another state" not in text


def test_live_part_of_a_task_shows_what_came_of_it(admin_client):
    queue = make_queue()
    task = make_task(queue)
    live = f"{TASKS}{task.pk}/stator/"
    claim = claim_one(queue)
    text = text_of(admin_client.get(live))
    assert re.search(r"stator-badge stator-leased\">running<", text)
    assert "bot-1, " in text
    assert re.findall(r'data-stator-code="(\w+)"', text) == ["held"]
    claim.resolve({"url": "there"})
    text = text_of(admin_client.get(live))
    assert re.search(r"stator-badge stator-terminal\">completed<", text)
    assert escape('"url": "there"') in text


def test_page_of_a_task_shows_results_and_claims_that_were_lost(admin_client):
    queue = make_queue()
    task = make_task(queue)
    claim_one(queue)
    pass_time(100)
    claim_one(queue, "bot-2").resolve({"url": "there"})
    text = text_of(admin_client.get(page(task)))
    assert escape('"url": "there"') in text
    assert re.search(r'<span class="stator-what">lost</span> <span class="stator-who">by worker bot-1<', text)


def test_task_is_not_edited(admin_client):
    task = make_task(make_queue())
    before = Task.objects.values().get()
    assert admin_client.post(page(task), {"action": "other", "queue": task.queue_id}).status_code == 403
    assert Task.objects.values().get() == before
