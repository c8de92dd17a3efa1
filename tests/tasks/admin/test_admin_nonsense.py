"""Addresses and requests that people make by hand: whatever they ask for, the admin answers."""

import pytest
from django.urls import reverse

from stator.models import Pause
from tasks.models import Consumer, Queue, Schedule, Task
from tests.testapp.keys import CodeKeyed, TextKeyed, UuidKeyed
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def url_of(model, page="changelist", *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@pytest.mark.parametrize(
    ("model", "act"),
    [
        (Queue, "queue_resume"), (Task, "task_cancel"), (Task, "stator_retry"), (Schedule, "pause"),
        (Pause, "stator_end"), (Consumer, "delete_selected"), (Parcel, "stator_retry"), (TextKeyed, "stator_retry"),
        (UuidKeyed, "stator_pause"), (CodeKeyed, "stator_unlock"),
    ],
)  # fmt: skip
def test_action_on_an_impossible_key_changes_nothing(admin_client, model, act):
    for key in ("nope", "9" * 30, "\0", "9" * 5000, ""):
        answer = admin_client.post(url_of(model), {"action": act, "index": "0", "_selected_action": [key]}, follow=True)
        assert answer.status_code == 200, key[:40]
