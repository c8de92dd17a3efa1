"""Figures of queues: few statements, each with a limit on what it counts."""

import pytest

from tasks.diagnosis import figures as module
from tasks.diagnosis.figures import Figures, figures_of
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_status_is_counted_in_its_queue(queue):
    other = make_queue("mail")
    for status, count in (("pending", 3), ("invisible", 2), ("running", 1), ("errored", 1), ("completed", 1)):
        for _ in range(count):
            make_task(queue, status, priority=-1 if status in ("running", "errored", "completed") else 5)
    figures = figures_of([queue, other], "default")
    assert figures[other.pk] == Figures("0", None, "0", "0", "0")
    found = figures[queue.pk]
    assert (found.waiting, found.later, found.running, found.dead) == ("3", "2", "1", "1")
    assert 0 <= found.oldest < 60


def test_counts_end_at_a_bound_and_say_so(queue, monkeypatch):
    monkeypatch.setattr(module, "MAX_COUNTED", 2)
    for _ in range(4):
        queue.publish("resize")
        queue.publish("resize", invisible_for=60)
    found = figures_of([queue], "default")[queue.pk]
    assert (found.waiting, found.later) == ("2+", "2+")
