"""Figures of queues: few statements, each with a limit on what it counts."""

import pytest

from tasks.queue import figures as module
from tasks.queue.figures import figures_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_counts_end_at_a_bound_and_say_so(queue, monkeypatch):
    monkeypatch.setattr(module, "MAX_COUNTED", 2)
    for _ in range(4):
        queue.publish("resize")
        queue.publish("resize", invisible_for=60)
    found = figures_of([queue], "default")[queue.pk]
    assert (found.waiting, found.later) == ("2+", "2+")
