"""The last hour of a queue on its page."""

import pytest

from tasks.admin import queue_flow
from tasks.admin.queue_flow import flow_of
from tests.stator.making import ago, change
from tests.tasks.admin.pages import page, text_of
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db


def test_page_of_a_queue_charts_its_last_hour(admin_client, monkeypatch):
    queue = make_queue("flow")
    change(make_task(queue, key="open"), created=ago(600))
    change(make_task(queue, "invisible", key="later"), created=ago(60))
    change(make_task(queue, "running", key="held", priority=-1), created=ago(4000))
    change(make_task(queue, "completed", key="done", priority=-2), created=ago(1800), state_changed=ago(1200))
    change(make_task(queue, "errored", key="dead", priority=-3), created=ago(1800), state_changed=ago(900))
    change(make_task(queue, "completed", key="old", priority=-4), created=ago(9000), state_changed=ago(8000))
    make_task(make_queue("other"), "running")
    change(make_task(queue, "completed", key="odd", priority=-5), created=ago(100), state_changed=ago(3000))
    found = flow_of(queue)
    assert (found.ended.total, found.ended.bad, found.open.latest) == (3, 1, 3)
    counts = [bar.point.count for bar in found.open.bars]
    # Only the one that is held; then two that ended as well; then one that ended, the open one, and at last all three.
    assert (counts[0], max(counts), counts[40], counts[50]) == (1, 3, 2, 2)
    text = text_of(admin_client.get(page(queue)))
    assert "Tasks that ended, by minute: 3 in all" in text
    assert "Tasks that had not ended: 3 now, 3 at most" in text
    monkeypatch.setattr(queue_flow, "MOST", 1)
    assert (flow_of(queue).ended, flow_of(queue).open) == (None, None)
    assert "there is no chart" in text_of(admin_client.get(page(queue)))
