"""Dead letters of a queue on its page, grouped by error."""

import pytest

from stator.models import Report
from tests.tasks.admin.pages import TASKS, make_dead, page, text_of
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db


def test_page_of_a_queue_has_dead_letters_by_error_and_requeues_those_of_one(admin_client):
    queue = make_queue("mail")
    make_dead(queue, 3)
    last = queue.tasks.latest("pk")
    label = {"model_label": "tasks.task", "state": "pending"}
    for task in queue.tasks.exclude(pk=last.pk):
        Report.objects.create(object_pk=str(task.pk), error="TimeoutError", message="mail is away\nsince noon", **label)
    response = admin_client.get(page(queue))
    assert [(len(pks), error) for error, pks in response.context["queue_dead"]] == [
        (2, "TimeoutError: mail is away"), (1, "no error is stored"),
    ]  # fmt: skip
    text = text_of(response)
    assert "No worker process" in text
    _, chosen = response.context["queue_dead"][0]
    asked = admin_client.post(TASKS, {"action": "task_requeue", "_selected_action": chosen})
    assert "2 dead letters will be requeued" in text_of(asked)
    assert "Per minute" in text_of(asked)
