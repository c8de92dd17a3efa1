"""Reasons why no worker takes a task, for one task and counted for many."""

import re
from pathlib import Path

import pytest
from django.core.management import call_command

from stator.models import Worker
from tasks.extensions.problems import unserved
from tasks.models import Claimant, Queue, Task
from tasks.queue.eligibility import RULES
from tests.stator.making import ago
from tests.tasks.making import claim_one, make_queue
from tests.tasks.queue.crew import live_process, reasons

GUIDE = Path(__file__).parents[3] / "docs/guides/stuck.rst"

pytestmark = pytest.mark.django_db(transaction=True)


def explained(task, capsys):
    """Return what ``explain`` prints for the task."""
    call_command("stator", "explain", "tasks.Task", str(task.pk))
    return capsys.readouterr().out


def test_action_that_no_live_worker_has_is_not_next_in_line(queue, capsys):
    live_process()
    task = queue.publish("typo").task
    said = explained(task, capsys)
    assert said.startswith("action_unserved: No live worker has action 'typo' for queue encode: ")
    assert "-> Deploy code that has the action" in said
    assert "next in line" not in said


def test_action_that_a_live_worker_has_or_may_have_is_no_trouble_if_it_is_not_here(queue):
    live_process(**{"": ["newer"]})
    task = queue.publish("newer").task
    Queue.objects.update(actions_elsewhere=False)
    assert list(reasons(task)) == ["in_line"]
    Worker.objects.update(published={})
    assert list(reasons(task)) == ["in_line"]


def test_queue_that_no_live_worker_serves_is_not_next_in_line(queue, capsys):
    live_process(1, queues=["mail", "other"])
    live_process(2, queues=["mail"])
    said = explained(queue.publish("echo").task, capsys)
    assert said.startswith("queue_unserved: No live worker serves queue encode: 2 worker processes serve only other ")
    assert "(mail, other)" in said
    assert "-> Start runstator without --queue, or with --queue encode" in said


def test_named_workers_that_are_gone_say_when_one_last_asked(queue, capsys):
    task, typed = queue.publish("resize").task, queue.publish("unheard of").task
    assert "none has asked for work yet" in reasons(typed)["no_named_worker"].sentence
    assert queue.claim(worker="bot-2", metadata={"none": "such"}) == []
    Claimant.objects.update(seen=ago(7200))
    said = explained(task, capsys)
    assert "none is live: bot-2 asked last, 2 h ago." in said
    assert "-> Start a program that claims from this queue, or deploy code that has the action" in said
    live_process()
    assert list(reasons(typed)) == ["no_named_worker"]


def test_task_that_a_program_published_is_for_named_workers(queue):
    live_process()
    task = queue.publish("echo").task
    Task.objects.update(elsewhere_only=True)
    assert list(reasons(task)) == ["elsewhere_only", "no_named_worker"]
    assert Task.stator.explain_counts() == {"no_named_worker": 1}


def test_task_whose_live_workers_all_rejected_it_says_so_with_a_remedy(queue):
    task = queue.publish("resize").task
    claim_one(queue, "bot-1").release()
    found = reasons(task)
    assert list(found) == ["no_eligible_worker"]
    assert "clear_failed" in found["no_eligible_worker"].remedy
    assert queue.claim(worker="bot-2", metadata={"none": "such"}) == []
    assert list(reasons(task)) == ["named_only", "in_line"]
    claim_one(queue, "bot-2").release()
    assert reasons(task)["no_eligible_worker"].numbers == {"workers": 2}
    Claimant.objects.update(seen=ago(3600))
    assert "no_eligible_worker" not in reasons(task)


def test_task_whose_worker_ids_are_all_gone_names_them(queue):
    live_process()
    task = queue.publish("echo", worker_ids=["bot-1", "bot-2"]).task
    assert queue.claim(worker="bot-1", metadata={"none": "such"}) == []
    assert list(reasons(task)) == ["only_workers", "in_line"]
    Claimant.objects.update(seen=ago(7200))
    found = reasons(task)
    assert list(found) == ["no_eligible_worker", "only_workers"]
    assert "bot-1 (asked 2 h ago), bot-2 (has not asked)" in found["no_eligible_worker"].sentence
    assert "update=True" in found["no_eligible_worker"].remedy
    Worker.objects.all().delete()
    assert list(reasons(task)) == ["no_named_worker", "only_workers"]


def test_every_reason_of_a_task_has_a_line_in_the_guide():
    table = GUIDE.read_text().partition("\nWho serves a task\n")[2].partition("\nA named worker counts")[0]
    explained = {"dead_letter", "part", "shared", "held", "no_handler", "throttled"}
    own = {*(rule.code for rule in RULES), *unserved.REASONS, *explained}
    cells = [line[:22] for line in table.splitlines() if line.startswith("``")]
    assert set(re.findall(r"\w+", " ".join(cells))) == own


def test_counts_have_the_same_first_reasons(queue):
    live_process()
    mail = make_queue("mail")
    mail.claim(worker="bot-1")
    tasks = [
        queue.publish("typo").task,
        queue.publish("typo").task,
        queue.publish("echo").task,
        queue.publish("echo", worker_ids=["bot-9"]).task,
        queue.publish("echo", invisible_for=60).task,
        mail.publish("resize").task,
        mail.publish("echo").task,
    ]
    firsts = [next(iter(reasons(task))) for task in tasks]
    assert firsts == [
        "action_unserved", "action_unserved", "in_line", "no_eligible_worker", "not_due", "named_only", "in_line",
    ]  # fmt: skip
    counts = {code: firsts.count(code) for code in firsts}
    assert Task.stator.explain_counts() == counts
