"""Batches in the admin: how far they are, and the actions of operators."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from stator.testing import drain
from tasks import querysets
from tasks.admin import batches
from tasks.models import Batch
from tests.queries import statements, unbounded
from tests.tasks.admin.pages import act, page, text_of
from tests.tasks.making import claim_one

pytestmark = pytest.mark.django_db

LIST = reverse("admin:tasks_batch_changelist")


@pytest.fixture
def batch(queue):
    """Of its three tasks one is done, one is errored, and one waits."""
    made = Batch(key="album-7", on_failed="complain")
    queue.publish_many([{"action": "resize", "max_attempts": 1} for _ in range(3)], batch=made)
    claim_one(queue).resolve()
    claim_one(queue).fail("no such image")
    return made


def test_page_shows_how_far_the_batch_is_and_leads_to_its_tasks(admin_client, batch, queue):
    shown = text_of(admin_client.get(page(batch)))
    assert '<progress max="100" value="66"' in shown
    assert "2 of 3 (66 %), 1 errored" in shown
    tasks = f"{reverse('admin:tasks_task_changelist')}?batch__id__exact={batch.pk}"
    assert tasks in shown
    assert admin_client.get(tasks).context["cl"].result_count == 3
    claim_one(queue).resolve()
    drain(Batch)
    batch.tasks.all().delete()
    assert "3 of 3 (100 %), 1 errored" in text_of(admin_client.get(page(batch)))


def test_list_shows_how_many_tasks_are_left_with_bounded_counts(admin_client, batch):
    asked = statements(lambda: admin_client.get(LIST))
    assert unbounded([each for each in asked if "tasks_task" in each]) == []
    [row] = admin_client.get(LIST, {"q": "album-7"}).context["cl"].result_list
    assert row.shown_left == "1"


def test_what_was_canceled_is_not_requeued(admin_client, batch):
    act(admin_client, "batch_cancel", batch, url=LIST, reason="ordered twice")
    assert LogEntry.objects.get().change_message == "Canceled. ordered twice"
    shown = text_of(act(admin_client, "batch_requeue", batch, url=LIST))
    assert "0 batches requeued. Not changed: batch album-7 is canceled" in shown


def test_batches_that_are_too_many_for_one_action_are_told(admin_client, queue, monkeypatch):
    monkeypatch.setattr(batches, "AT_ONCE", 2)
    made = [Batch.objects.create(queue=queue) for _ in range(3)]
    assert "1 more are left: at most 2 are changed at once" in text_of(
        act(admin_client, "batch_cancel", *made, url=LIST)
    )


def test_dead_letters_beyond_those_of_one_call_are_told(admin_client, batch, monkeypatch):
    claim_one(batch.queue).fail("no such image")
    monkeypatch.setattr(querysets, "MAX_TASKS", 1)
    left = "has dead letters left: repeat the action after these are done."
    assert f"batch album-7 {left}" in text_of(act(admin_client, "batch_requeue", batch, url=LIST))
    assert left not in text_of(act(admin_client, "batch_requeue", batch, url=LIST))
