"""Tasks in the admin: their list, their pages, and publishing."""

import re

import pytest
from django.urls import reverse
from django.utils.html import escape

from stator.admin import filters, read_only
from stator.models import Report, Worker, move_rows, worker_of
from tasks.models import Run, Schedule, Task
from tests.stator.making import ago, change
from tests.tasks.admin.pages import RUNS, TASKS, make_all, page, person, text_of
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


def test_status_filter_has_the_tasks_of_that_status(admin_client, monkeypatch):
    queue = make_queue()
    for status in ("running", "completed", "errored", "canceled", "invisible", "pending"):
        make_task(queue, status)
    change(queue.publish("resize", invisible_for=60).task, state_next_attempt=ago(1))
    queue.publish("resize", worker_ids=["a", "b"], worker_count=2)  # tasks.extensions.shared
    for few, statuses in ((0, STATUSES), (2000, STATUSES[:2])):
        monkeypatch.setattr(filters, "FEW", few)
        for status in statuses:
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
    dead = text_of(admin_client.get(page(make_task(make_queue("other"), "errored"))))
    assert "After you have fixed it, requeue the task." in dead
    assert "move it to another state" not in dead


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


def test_task_is_not_edited(admin_client):
    task = make_task(make_queue())
    before = Task.objects.values().get()
    assert admin_client.post(page(task), {"action": "other", "queue": task.queue_id}).status_code == 403
    assert Task.objects.values().get() == before


# Status, attempts and holder of tasks in lists


def test_list_shows_each_status_who_holds_it_and_how_often_it_was_tried(admin_client):
    tasks = make_all(make_queue())
    text = text_of(admin_client.get(TASKS))
    for status in STATUSES:
        assert f'<span class="task-status task-{status}">{status}</span>' in text
        assert f"key-of-{status}" in text
    assert re.search(r"maker, (59 s|1 m) left", text)
    change(tasks["running"], state_locked_until=ago(62))
    assert re.search(r"maker, lease ran out 1 m \d+ s ago", text_of(admin_client.get(TASKS)))


# The timeline of a task on its page


@pytest.mark.needs("reports")
def test_page_of_a_task_tells_what_happened_to_it_the_latest_first(admin_client, admin_user):
    queue = make_queue(same_worker_again=True)
    task = make_task(queue)
    claim_one(queue, "bot-3")
    pass_time(100)
    try:
        raise ValueError("no such image")
    except ValueError as error:
        claim_one(queue).fail(error)
    pass_time(100)
    claim_one(queue, "bot-2").resolve({"url": "there"})
    move_rows(queue.tasks.all(), "canceled", actor="ann", reason="a mistake")
    text = text_of(admin_client.get(page(task)))
    # The end of a claim and the move that came of it may be of one moment, so whose they are comes before or after.
    order = ["canceled", "by ann", "succeeded", "failed", "ValueError: no such image", "published"]
    found = [text.index(word, text.index("What happened")) for word in order]
    assert found == sorted(found)
    assert re.search(r'<span class="stator-what">lost</span> <span class="stator-who">by worker bot-3<', text)
    assert "by worker bot-2" in text
    assert "a mistake" in text
    header = r'<details[^>]*><summary>Traceback</summary><pre tabindex="0">Traceback \(most recent call last\):'
    assert re.search(rf"{header}\s+File .*in test_page_of", text)


@pytest.mark.needs("reports")
def test_tracebacks_are_for_those_who_may_see_them(client):
    queue = make_queue()
    task = make_task(queue)
    try:
        raise ValueError("no such image")
    except ValueError as error:
        claim_one(queue).fail(error)
    client.force_login(person("view_task", "view_run"))
    for url in (page(task), RUNS, page(Run.objects.get())):
        text = text_of(client.get(url))
        assert "ValueError: no such image" in text
        assert "in test_tracebacks" not in text
    client.force_login(person("view_task", "view_run", "view_report"))
    assert "in test_tracebacks" in text_of(client.get(page(task)))


def test_failure_in_a_worker_process_is_told_once(admin_client):
    queue = make_queue(max_attempts=1)
    task = make_task(queue)
    claim = claim_one(queue, "mailer-1")
    Worker.objects.create(id=worker_of(claim.token), name="mailer-1", host="web-1", pid=41, models=["tasks.task"])
    claim.fail(ValueError("no such image"))
    # As the process records it.
    assert Report.objects.update(worker=worker_of(claim.token)) == 1
    shown = admin_client.get(page(task))
    assert [event.who for event in shown.context["stator_timeline"] if event.kind == "error"] == ["worker mailer-1"]
    move = next(event for event in shown.context["stator_timeline"] if "errored" in event.what)
    assert move.who == "worker mailer-1"
    assert sum("no such image" in event.said for event in shown.context["stator_timeline"]) == 1


# Large tables in the admin are searched among their newest rows


def test_search_finds_whole_names_and_parts_of_the_newest(admin_client, schedule, monkeypatch):
    monkeypatch.setattr(read_only, "SEARCHED", 1)
    for entity in ("eight", "nine", "ten"):
        Schedule.objects.create(name=f"of {entity}", entity=entity, queue=schedule.queue, action="act", period=60)

    def found(words):
        answer = admin_client.get(reverse("admin:tasks_schedule_changelist"), {"q": words})
        return {each.entity for each in answer.context["cl"].result_list}

    assert found("te") == {"ten"}
    assert found("report") == {"seven"}
    assert found("seve") == set()
