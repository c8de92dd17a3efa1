"""``manage.py tasks`` for those who look after queues: what is in each, dead letters, acts on both, and refusals."""

import getpass
from functools import partial

import pytest

from stator.models import History
from tasks.models import Task
from tests import commanding
from tests.stator.commands.errands import undo_line
from tests.stator.making import ago, change
from tests.tasks.making import claim_one, claimed, fresh, make_queue, make_task
from tests.tasks.queue.processes import live_process

pytestmark = pytest.mark.django_db(transaction=True)

run, asked = (partial(call, "tasks") for call in (commanding.run, commanding.asked))


# Looking


def test_queues_are_listed_with_what_is_in_them(queue):
    for status in (*["errored"] * 3, "running", *["invisible"] * 2):
        make_task(queue, status)
    change(make_task(queue), state_changed=ago(600))
    queue.publish_many([{"action": "resize"}] * 3)
    make_queue("mail").pause(publish=True, claim=True, reason="disk is full", author="ada")
    encode, mail = asked("queues")
    assert [encode[name] for name in ("queue", "waiting", "later", "running", "dead")] == ["encode", "4", "2", "1", "3"]
    assert 599 < encode["oldest"] < 660
    assert (encode["workers"], encode["paused"]) == (["maker"], [])
    assert (mail["paused"], mail["pause"]) == (["publish", "claim"], "paused by ada (disk is full)")
    assert "publish and claim: paused by ada (disk is full)" in run("queues")
    assert [one["queue"] for one in asked("queues", "mail")] == ["mail"]


def test_workers_of_a_queue_are_those_that_ask_and_the_processes_that_claim_from_it(queue):
    claimed(queue, worker="bot")
    live_process("web")
    live_process("mailer", published={"tasks": {"queues": ["mail"]}})
    live_process("objects", models=("testapp.parcel",))
    make_queue("mail")
    assert [(one["queue"], one["workers"]) for one in asked("queues")] == [
        ("encode", ["bot", "web"]), ("mail", ["mailer", "web"]),
    ]  # fmt: skip
    assert [line.split()[-2] for line in run("queues").splitlines()[1:]] == ["2", "2"]


def test_dead_letters_are_listed_with_their_last_errors_the_latest_first(queue):
    assert run("dead") == "There are no dead letters.\n"
    first, second = make_task(queue, "errored"), make_task(queue, "errored")
    other = make_task(make_queue("mail"), "errored")
    for age, task in ((30, first), (20, second), (10, other)):
        change(task, state_changed=ago(age))
    make_task(queue)
    assert [one["task"] for one in asked("dead")] == [other.pk, second.pk, first.pk]
    (one,) = asked("dead", "--queue", "mail")
    assert (one["queue"], one["action"], one["error"]) == ("mail", "resize", "tasks.Failed: no such image")
    assert 9 < one["age"] < 60
    lines = run("dead", "--limit", 1).splitlines()
    assert lines[1].startswith(f"{other.pk} ")
    assert lines[1].endswith("tasks.Failed: no such image")
    assert lines[2] == "There may be more; raise --limit 1."


def test_shared_dead_letter_tells_the_error_of_a_part(queue):
    queue.publish("resize", worker_count=2, max_attempts=1)
    claim_one(queue, "bot-2").resolve()
    claim_one(queue).fail("disk is full")
    (one,) = asked("dead")
    assert one["error"] == "tasks.Failed: disk is full"


# Acts


def test_dead_letters_are_requeued_by_number(queue):
    dead, waiting = make_task(queue, "errored"), make_task(queue)
    told = run("requeue", dead.pk, waiting.pk, "--reason", "mended")
    assert told == (
        f"1 of 2 requeued; only errored tasks that are not part of another task can be requeued.\n{undo_line()}"
    )
    assert fresh(dead).status == "pending"
    entry = History.objects.filter(object_pk=str(dead.pk)).latest("pk")
    assert (entry.actor, entry.reason) == (getpass.getuser(), "mended")


def test_dead_letters_of_a_queue_are_requeued_at_a_pace(queue, monkeypatch):
    for _ in range(3):
        make_task(queue, "errored")
    make_task(make_queue("mail"), "errored")
    monkeypatch.setattr("tasks.querysets.MAX_TASKS", 2)
    text, *_ = run("requeue", "--queue", "encode", "--per-minute", 1).splitlines()
    assert text.startswith("2 of queue encode requeued; the last is due at ")
    assert text.endswith("; there are more: repeat the command after these are done.")
    answer = asked("requeue", "--queue", "encode")
    assert (answer["requeued"], answer["last_due"]) == (1, None)
    assert Task.objects.dead_letters().count() == 1


def test_tasks_are_canceled(queue):
    running, waiting = make_task(queue, "running"), make_task(queue)
    told = run("cancel", waiting.pk, running.pk)
    assert told == (
        "1 of 2 canceled; the others are gone, have ended, or are running (--running cancels these).\n" + undo_line()
    )
    answer = asked("cancel", running.pk, "--running", "--reason", "a mistake")
    assert (answer["canceled"], answer["named"], len(answer["actions"])) == (1, 1, 1)
    assert fresh(running).status == "canceled"


def test_queue_is_paused_and_resumed(queue):
    text = run("pause", "encode", "--claim", "--reason", "disk is full")
    assert text == f"Queue encode: claiming paused by {getpass.getuser()} (disk is full).\n"
    assert queue.current().claiming_paused
    answer = asked("pause", "encode", "--publish", "--claim", "--for", 60)
    assert (answer["publish"], answer["claim"], bool(answer["until"])) == (True, True, True)
    assert run("resume", "encode") == "Queue encode is resumed.\n"
    assert not queue.current().claiming_paused
