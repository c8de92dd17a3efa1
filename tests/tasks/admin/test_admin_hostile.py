"""Each kind of page in the admin, asked for with values that nobody means: none answers with an error."""

import pytest
from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.db import models
from django.urls import reverse

from stator.admin import StatorAdmin
from stator.admin.listing import AnyAddressAdmin
from stator.models import Overview, Pause, Report, Worker
from tasks.models import Consumer, Queue, Run, Schedule, Task
from tests.tasks.making import make_queue, make_task
from tests.testapp.keys import CodeKeyed, OneToOneKeyed, Plain, TextKeyed, UuidKeyed

pytestmark = pytest.mark.django_db

# Of other admins, Django's own among them, SQLite refuses some of these numbers with an error.
ADMINS = {model: own for model, own in admin.site._registry.items() if isinstance(own, AnyAddressAdmin)}
# One for each kind of key; those with an admin of their own have filters of their own.
ALIKE = {type(model._meta.pk): model for model, own in ADMINS.items() if type(own) is StatorAdmin}
HARD = ("x", "a\0b", str(2**70), "9999-12-31T23:59:59-12:00")
OF_FORMS = (*HARD, "", "{}", "[" * 5000, "1e400", "nan", "9" * 5000, "2026-02-30", "0001-01-01T00:00:00+14:00")
OF_LISTS = ("q", "p", "o", "e", "all", "_facets", "_popup", "_to_field", "nothing")


def url_of(model, page, *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@pytest.fixture
def client(admin_client):
    """One whose pages answer 500 where they fail."""
    admin_client.raise_request_exception = False
    return admin_client


def failing(client, url, given):
    """Return the parameters with which the page, or the page that it redirects to, is an error."""
    # Where most values lead, whatever they were.
    refused = f"{url.rpartition('/')[2]}?e=1"
    return [each for each in given if status_at_last(client, url, each, refused) >= 500]


def status_at_last(client, url, given, refused):
    answer = client.get(url, given)
    if answer.status_code == 302 and not answer.url.endswith(refused):
        answer = client.get(answer.url, follow=True)
    return answer.status_code


def fields_of(model):
    named = {name for field in model._meta.get_fields() for name in (field.name, getattr(field, "attname", ""))}
    return {*named, "_popup", "_changelist_filters"} - {""}


@pytest.mark.parametrize("model", [Pause, Queue, Schedule, Task, Consumer, UuidKeyed], ids=lambda model: model.__name__)
def test_form_of_a_new_object_takes_any_values_of_its_fields_from_the_address(client, model):
    # Of all fields at once: each is read by itself. Django refuses the whole page for a wrong ``_to_field``.
    given = [dict.fromkeys(fields_of(model), value) for value in OF_FORMS]
    assert {client.get(url_of(model, "add"), each).status_code for each in given} == {200}
    assert not failing(client, url_of(model, "add"), [{"_to_field": value} for value in HARD])


@pytest.mark.parametrize("page", ["change", "history", "delete"])
def test_pages_of_an_object_take_any_parameters(client, page):
    given = [dict.fromkeys(fields_of(Task), each) for each in HARD] + [{"_to_field": each} for each in HARD]
    assert not failing(client, url_of(Task, page, make_task(make_queue()).pk), given)


def test_pages_of_an_object_take_any_key(client):
    for model in (*ALIKE.values(), Worker):
        for text in HARD:
            assert client.get(url_of(model, "change", text), follow=True).status_code < 500, (model, text)


@pytest.mark.parametrize("model", [*ALIKE.values(), Overview, Queue, Report, Run, Schedule, Task, Worker])
def test_list_takes_any_values_of_its_filters_from_the_address(client, model):
    if model is Task:
        make_task(make_queue())
    assert not failing(client, url_of(model, "changelist"), [{name: each} for name in asked_of(model) for each in HARD])


def asked_of(model):
    """Return the parameters that the list of a model takes."""
    if model is Overview:
        # It is no list, and filters nothing.
        return ["q"]
    if model in ALIKE.values():
        return ["pk", "pk__in", "pk__gte"]
    # What Django reads itself, it reads alike for all.
    asked = {"condition", "state", *(OF_LISTS if model is Queue else "q")}
    for each in ADMINS[model].list_filter:
        path = each[0] if isinstance(each, tuple) else each
        if not isinstance(path, str):
            asked.add(path.parameter_name)
            continue
        field = get_fields_from_path(model, path)[-1]
        asked |= {path, f"{path}__year" if isinstance(field, models.DateTimeField) else f"{path}__in"}
    return sorted(asked)


@pytest.mark.parametrize(
    ("model", "act"),
    [
        (Queue, "queue_resume"), (Task, "task_cancel"), (Schedule, "pause"), (Pause, "stator_end"),
        (Consumer, "delete_selected"), (TextKeyed, "stator_retry"), (CodeKeyed, "stator_unlock"),
    ],
)  # fmt: skip
def test_action_on_an_impossible_key_changes_nothing(admin_client, model, act):
    for key in ("nope", "9" * 30, "\0", ""):
        posted = {"action": act, "index": "0", "_selected_action": [key]}
        assert admin_client.post(url_of(model, "changelist"), posted, follow=True).status_code == 200, key


def initial(client, model, **given):
    """Return the form for a new object, with its initial values."""
    return client.get(url_of(model, "add"), given).context["adminform"].form


def test_form_begins_with_what_the_address_has_and_not_with_what_no_field_takes(client):
    queue = make_queue()
    form = initial(client, Schedule, name="nightly", queue=queue.pk, data='{"a": [1]}', period="x", until="nope")
    assert 'value="nightly"' in str(form["name"])
    assert f'value="{queue.pk}"' in str(form["queue"])
    assert "{&quot;a&quot;: [1]}" in str(form["data"])
    assert "value=" not in str(form["period"])
    form = initial(client, Consumer, queues=f"{queue.pk}", enabled="")
    assert f'value="{queue.pk}" selected' in str(form["queues"])
    plain = Plain.objects.create(title="here")
    assert f'value="{plain.pk}"' in str(initial(client, OneToOneKeyed, plain=plain.pk)["plain"])
