"""Addresses and requests that people make by hand: whatever they ask for, the admin answers."""

from urllib.parse import quote

import pytest
from django.db import models
from django.urls import reverse

from stator.models import Depth, History, Pause, Report, Stats, Worker
from tasks.models import Consumer, Queue, Run, Schedule, Task
from tests.testapp.keys import CodeKeyed, TextKeyed, UuidKeyed
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db

LISTED = (Stats, Depth, Report, History, Pause, Worker, Queue, Task, Run, Schedule, Consumer, Parcel, TextKeyed)
DIGITS = "9" * 30


def url_of(model, page="changelist", *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@pytest.mark.parametrize("model", LISTED, ids=lambda model: model.__name__)
def test_list_leaves_out_a_filter_with_nul(admin_client, model):
    texts = [field.name for field in model._meta.concrete_fields if isinstance(field, models.CharField)]
    # Where the second request is not answered, the browser is sent round and round.
    for name in {*texts, f"{texts[0]}__exact" if texts else "pk", "status"}:
        answer = admin_client.get(f"{url_of(model)}?{name}=a%00b", follow=True)
        assert answer.status_code == 200, name


@pytest.mark.parametrize(
    "query", ["at__range=", "kind__range=xyz", "at__year=-1", f"version__lt={DIGITS}", "kind__regex=["]
)
def test_list_leaves_out_a_filter_that_no_statement_takes(admin_client, query):
    History.objects.create(model_label="tasks.task", object_pk="1", version=1, source="pending", to="running")
    assert admin_client.get(f"{url_of(History)}?{query}").status_code in (200, 302)


@pytest.mark.parametrize("value", [DIGITS, "9" * 24, "nope"])
def test_list_of_a_queue_that_cannot_be_is_shown_without_it(admin_client, value):
    for model in (Task, Schedule):
        for name in ("queue", "queue__id__exact"):
            assert admin_client.get(url_of(model), {name: value}, follow=True).status_code == 200


@pytest.mark.parametrize(
    "model", [Worker, TextKeyed, CodeKeyed, Parcel, Queue, Pause], ids=lambda model: model.__name__
)
@pytest.mark.parametrize("page", ["change", "history"])
def test_page_of_a_key_with_a_nul_is_that_of_none(admin_client, model, page):
    assert admin_client.get(f"{url_of(model)}{quote(chr(0))}/{page}/").status_code == 302


@pytest.mark.parametrize("key", ["nope", DIGITS, "\0", "9" * 5000, ""], ids=lambda key: repr(key[:8]))
@pytest.mark.parametrize(
    ("model", "act"),
    [
        (Queue, "queue_resume"), (Task, "task_cancel"), (Task, "stator_retry"), (Schedule, "pause"),
        (Pause, "stator_end"), (Consumer, "delete_selected"), (Parcel, "stator_retry"), (TextKeyed, "stator_retry"),
        (UuidKeyed, "stator_pause"), (CodeKeyed, "stator_unlock"),
    ],
)  # fmt: skip
def test_action_on_an_impossible_key_changes_nothing(admin_client, model, act, key):
    answer = admin_client.post(url_of(model), {"action": act, "index": "0", "_selected_action": [key]}, follow=True)
    assert answer.status_code == 200
