"""Which actions and queues a worker process publishes that it serves."""

import pytest

from stator.extensions.fleet.presence import published_by
from tasks.queue.serving import Process, processes_in
from tests.tasks.queue.crew import reasons
from tests.tasks.queue.processes import live_process

pytestmark = pytest.mark.django_db(transaction=True)


def test_process_with_too_many_actions_may_have_any(queue, monkeypatch):
    monkeypatch.setattr("tasks.queue.serving.MAX_ACTIONS", 1)
    live_process("w1", database="default", published=published_by(object()))
    (process,) = processes_in("default")
    assert (process.actions, process.queues) == (None, None)
    assert list(reasons(queue.publish("typo").task)) == ["in_line"]


def test_what_another_release_publishes_counts_as_any():
    for published in (None, {"tasks": 3}, {"tasks": {"actions": [], "queues": 7}}):
        assert Process.of("1", published) == Process("1", None, None)
