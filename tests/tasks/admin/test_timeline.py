"""The timeline of a task on its page."""

import re

import pytest

from stator.models import Report, Worker, move_rows, worker_of
from tasks.models import Run
from tests.tasks.admin.pages import RUNS, page, person, text_of
from tests.tasks.making import claim_one, make_queue, make_task, pass_time

pytestmark = pytest.mark.django_db


def test_page_of_a_task_tells_what_happened_to_it_the_latest_first(admin_client, admin_user):
    queue = make_queue(same_worker_again=True)
    task = make_task(queue)
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
    assert "by worker bot-2" in text
    assert "a mistake" in text
    header = r'<details[^>]*><summary>Traceback</summary><pre tabindex="0">Traceback \(most recent call last\):'
    assert re.search(rf"{header}\s+File .*in test_page_of", text)


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
