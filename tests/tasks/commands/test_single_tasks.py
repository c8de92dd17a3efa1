"""``manage.py tasks publish``, ``list`` and ``show``: one task from a shell, and what became of it."""

from functools import partial

import pytest

from tasks.models import Task
from tests import commanding
from tests.tasks.making import claim_one, make_queue, make_task

pytestmark = pytest.mark.django_db(transaction=True)

run, asked = (partial(call, "tasks") for call in (commanding.run, commanding.asked))


def test_task_is_published_with_its_options(queue):
    told = run(
        "publish", "encode", "resize", "--data", '{"image": 7}', "--key", "k", "--priority", 3, "--timeout", 30,
        "--metadata", "region=eu", "--metadata", "gold=true", "--worker", "bot-1", "--invisible-for", 60,
    )  # fmt: skip
    task = Task.objects.get()
    assert told == f"Task {task.pk} in queue encode: inserted, invisible.\n"
    assert (task.data, task.key, task.priority, task.timeout) == ({"image": 7}, "k", 3, 30)
    assert (task.metadata, task.worker_ids) == ({"region": "eu", "gold": True}, ["bot-1"])
    again = asked("publish", "encode", "resize", "--key", "k", "--priority", 1, "--update")
    assert (again["task"], again["outcome"]) == (task.pk, "matched")
    assert Task.objects.get().priority == 1


def test_tasks_are_listed_the_latest_first(queue):
    assert run("list") == "There are no such tasks.\n"
    dead, waiting = make_task(queue, "errored"), make_task(queue)
    other = make_task(make_queue("mail"))
    assert [one["task"] for one in asked("list")] == [other.pk, waiting.pk, dead.pk]
    assert [one["task"] for one in asked("list", "--queue", "encode", "--status", "pending")] == [waiting.pk]
    assert asked("list", "--action", "nothing") == []
    lines = run("list", "--limit", 1).splitlines()
    assert lines[1].split()[:4] == [str(other.pk), "mail", "resize", "pending"]
    assert lines[2] == "There may be more; raise --limit 1."


def test_task_is_shown_with_its_attempts_and_why_it_does_not_move(queue):
    task = make_task(queue, "errored")
    shown = asked("show", task.pk)
    assert (shown["status"], shown["data"], shown["results"]) == ("errored", {"image": 7}, [])
    assert [(one["worker"], one["outcome"]) for one in shown["runs"]] == [("maker", "failed")]
    assert shown["reasons"][0]["code"] == "dead_letter"
    told = run("show", task.pk)
    assert told.startswith(f"Task {task.pk}, resize in queue encode: errored, attempts ")
    assert 'data: {"image": 7}' in told
    assert "why: It ended without success" in told
    assert "no such image" in told.splitlines()[-1]
    done = queue.publish("resize").task
    claim_one(queue).resolve({"ok": True})
    assert 'result: {"ok": true}' in run("show", done.pk)
