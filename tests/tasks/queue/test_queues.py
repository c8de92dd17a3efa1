"""Queues: what they are made as stays, their settings are checked, and their pauses end."""

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from tasks.exceptions import TaskError
from tasks.models import Claimant, Queue
from tests.stator.making import ago
from tests.tasks.making import IMPOSSIBLE_NAMES, make_queue

pytestmark = pytest.mark.django_db(transaction=True)


def test_kind_and_key_stay_as_the_queue_was_made():
    make_queue("films", exclusive_key="title")
    queue = Queue.objects.get()
    queue.exclusive_key = "name"
    with pytest.raises(ValidationError, match="cannot be changed"):
        queue.save()
    queue = Queue.objects.get()
    queue.lease = 7
    queue.save()
    assert (Queue.objects.get().lease, Queue.objects.get().exclusive_key) == (7, "title")


def test_settings_that_no_task_could_have_are_refused():
    for settings in (
        {"lease": 0}, {"lease": -5}, {"lease": float("nan")}, {"timeout": -1}, {"retention": -1}, {"retention": 1e12},
        {"failed_retention": -1}, {"failed_retention": float("nan")}, {"invisible_for": float("inf")},
        {"max_attempts": 0}, {"kind": "exclusive", "exclusive_key": "7"}, {"kind": "exclusive", "exclusive_key": 'a"b'},
    ):  # fmt: skip
        [*_, name] = settings
        queue = Queue(name="q", **settings)
        for check in (queue.full_clean, queue.save):
            with pytest.raises(ValidationError) as refused:
                check()
            assert list(refused.value.message_dict) == [name]
    assert not Queue.objects.exists()


def test_two_pauses_are_apart():
    queue = make_queue()
    queue.pause(publish=True)
    assert (queue.publishing_paused, queue.claiming_paused) == (True, False)
    queue.pause(claim=True)
    assert (queue.publishing_paused, queue.claiming_paused) == (False, True)
    queue.pause(publish=True, claim=True, reason="r", author="ada")
    found = Queue.objects.get()
    assert found.publish_paused
    assert found.claim_paused
    assert (found.pause_reason, found.pause_author) == ("r", "ada")
    queue.resume()
    assert (queue.publishing_paused, queue.claiming_paused) == (False, False)


def test_pause_whose_end_has_come_is_over():
    queue = make_queue()
    queue.pause(publish=True, claim=True, seconds=60)
    assert queue.publishing_paused
    assert "until 20" in queue.pause_description
    Queue.objects.update(pause_until=ago(1))
    queue = Queue.objects.get()
    assert queue.publish("a").outcome == "inserted"
    assert len(queue.claim(worker="bot-1")) == 1


def test_pause_of_no_length_is_refused():
    queue = make_queue()
    for seconds in (0, -1, 1e20):
        with pytest.raises(TaskError, match="seconds"):
            queue.pause(publish=True, seconds=seconds)


def test_workers_that_ask_for_work_are_known():
    queue = make_queue()
    queue.claim(worker="b")
    queue.claim(worker="a")
    queue.claim(worker="a")
    assert queue.live_workers() == ["a", "b"]
    Claimant.objects.filter(worker="b").update(seen=ago(3600))
    assert queue.live_workers() == ["a"]


@pytest.mark.needs("tasks_commands")
def test_impossible_names_are_refused_by_saving_and_cleaning_once_each_and_by_commands():
    for name, told in IMPOSSIBLE_NAMES:
        with pytest.raises(ValidationError, match=told):
            Queue.objects.create(name=name)
        with pytest.raises(ValidationError) as caught:
            Queue(name=name).full_clean()
        assert len(caught.value.message_dict["name"]) == 1
        with pytest.raises(CommandError) as refused:
            call_command("tasks", "queue", "create", name)
        assert "\n" not in str(refused.value)
        for command in (
            ("pause", name), ("queue", "set", name, "--lease", "5"),
            ("token", "create", "bot", "--verb", "claim", "--queue", name),
        ):  # fmt: skip
            with pytest.raises(CommandError, match=f"{told}|is not UTF-8"):
                call_command("tasks", *command)
    assert not Queue.objects.exists()
