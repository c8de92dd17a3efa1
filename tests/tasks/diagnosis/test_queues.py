"""Problems of queues: dead letters, and pauses with what waits behind them."""

import re

import pytest

from tests.commanding import asked, run
from tests.stator.making import ago, change
from tests.tasks.diagnosis.problems import by_code, make_nightly

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue():
    return make_nightly()


def test_dead_letters_are_a_problem_of_their_queue(queue):
    for number in range(14):
        task = queue.publish("mail", key=str(number)).task
        change(task, state="errored", state_ready=False, state_changed=ago(300))
    problem = by_code()["dead_letters"]
    words = r"14 tasks gave up \(dead letters\) and rest until requeued, the oldest 5 m[ \d s]* ago: in queue nightly"
    assert re.fullmatch(words, problem.text)
    assert problem.command == "manage.py tasks requeue --queue nightly"
    assert problem.actions[0].action == "task_requeue"


def test_model_with_dead_letters_or_a_paused_queue_is_not_said_to_need_nobody(queue):
    assert run("stator", "explain", "tasks.Task") == "No object of tasks.Task needs attention.\n"
    change(queue.publish("mail").task, state="errored", state_ready=False, state_changed=ago(300))
    queue.pause(publish=True, claim=False, author="ada")
    said = run("stator", "explain", "tasks.Task")
    assert "1 task gave up (dead letters) and rests" in said
    assert "-> manage.py tasks requeue --queue nightly" in said
    assert "publishing of a queue is paused: nightly paused by ada" in said
    assert "needs attention" not in said
    codes = [one["code"] for one in asked("stator", "explain", "tasks.Task")["troubles"]]
    assert codes == ["dead_letters", "queue_paused"]


def test_paused_queue_is_a_problem_with_what_waits_behind_it(queue):
    change(queue.publish("mail").task, state_changed=ago(2400))
    for what, told in (
        ("publish", "publishing of a queue is paused"),
        ("claim", "claiming of a queue is paused; 1 waits, the first for 40 m"),
    ):
        queue.pause(**{what: True}, reason="disk is full", author="ada")
        problem = by_code()["queue_paused"]
        assert problem.detail == "nightly paused by ada (disk is full)"
        assert problem.sentence.startswith(told)
        # What waits is an effect of the pause of claims, and of nothing else.
        assert ("slow" in by_code()) is (what == "publish")
        queue.resume(author="ada")
        assert "queue_paused" not in by_code()
