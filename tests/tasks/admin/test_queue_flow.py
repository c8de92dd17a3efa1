"""The last hour of a queue on its page."""

import pytest

from tasks.admin.queue_flow import flow_of
from tasks.chores.samples import sample
from tests.stator.making import ago, change
from tests.tasks.admin.pages import page, text_of
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db


def test_page_of_a_queue_charts_its_last_hour(admin_client):
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
    assert "Tasks that ended: 3 in all" in text
    assert "Tasks that had not ended: 3 now, 3 at most" in text


@pytest.mark.parametrize("period", ["day", "month"])
def test_days_and_months_of_a_queue_are_charted_by_samples(admin_client, period):
    queue = make_queue("flow")
    make_task(queue, key="open")
    make_task(queue, "completed", key="done", priority=-1)
    make_task(queue, "errored", key="dead", priority=-1)
    make_task(make_queue("other"), "completed")
    sample("default")
    found = flow_of(queue, period)
    assert (found.ended.total, found.ended.bad, found.waiting.most) == (2, 1, 1)
    text = text_of(admin_client.get(page(queue), {"period": period}))
    assert f"The last {period}" in text
    assert "Tasks that ended: 2 in all" in text
    assert "1 gave up" in text
    assert "Tasks that waited for a worker: 1 at most" in text
