"""Each kind of page in the admin, asked for with values that nobody means: none answers with an error."""

import uuid

import pytest
from django.contrib import admin
from django.contrib.admin.utils import get_fields_from_path
from django.db import connection, models
from django.db.models.fields import NOT_PROVIDED
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from stator.admin import StatorAdmin
from stator.admin.listing import AnyAddressAdmin
from stator.models import Overview, Pause
from tasks.models import Consumer, Queue, Schedule, Task
from tests.stator.making import raw
from tests.tasks.making import make_queue
from tests.testapp.keys import CodeKeyed, OneToOneKeyed, Plain, TextKeyed, UuidKeyed

pytestmark = pytest.mark.django_db

# Of other admins, Django's own among them, SQLite refuses some of these numbers with an error.
REGISTERED = sorted(admin.site._registry.items(), key=lambda item: item[0]._meta.label)
ALL = [model for model, model_admin in REGISTERED if isinstance(model_admin, AnyAddressAdmin)]
LONG = "9" * 5000
VALUES = (
    "x", "nope", "", "a\0b", "\0", "\N{REPLACEMENT CHARACTER}\U0001f600", "{}", "[]", "null", '{"a": [1]}', "[" * 5000,
    "-1", "0", "1", "1,2,x", "1.5", "1e400", "nan", "Infinity", str(2**31), str(2**63), str(2**70), LONG, "x" * 20_000,
    "True", "<b>'\"%", "2026-01-01", "2026-01-01 10:00:00", "2026-01-01T10:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00", "2026-02-30", "99999-01-01", "10:00", "00000000-0000-0000-0000-000000000000",
)  # fmt: skip
# Lists are asked for one thing at a time, of which there are many.
FEW = ("", "x", "a\0b", "{}", "-1", str(2**70), "9999-12-31T23:59:59-12:00")
LOOKUPS = ("", "__in", "__isnull", "__gte", "__year")
# What a column of some kind takes in no lookup.
HARD = ("x", "a\0b", str(2**70), "9999-12-31T23:59:59-12:00")
OF_LISTS = ("q", "p", "o", "e", "all", "_facets", "_popup", "_to_field", "nothing")
OF_FORMS = ("_popup", "_to_field", "_changelist_filters")


def kinds_of(model):
    """Return what a model has that may read values in its own way: the kinds of its admin, its key and its fields."""
    kinds = {type(admin.site._registry[model]), ("key", type(model._meta.pk))}
    return kinds | {type(field) for field in model._meta.get_fields()}


def of_each_kind(models):
    """Return as many models as have all kinds, and no model whose kinds earlier ones have."""
    found, seen = [], set()
    for model in models:
        if not kinds_of(model) <= seen:
            found.append(model)
            seen |= kinds_of(model)
    return found


MODELS = of_each_kind(ALL)
KEYED = [model for model in MODELS if model is not Overview]
KEYED = list({type(model._meta.pk): model for model in reversed(KEYED)}.values())
# Those with no admin of their own, which differ by their keys; the first stands for what they have in common.
ALIKE = [model for model in MODELS if type(admin.site._registry[model]) is StatorAdmin]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)


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
    assert client.get(url, {"e": "1"}).status_code < 500
    return [each for each in given if status_at_last(client, url, each, refused) >= 500]


def status_at_last(client, url, given, refused):
    answer = client.get(url, given)
    if answer.status_code == 302 and not answer.url.endswith(refused):
        answer = client.get(answer.url, follow=True)
    return answer.status_code


def fields_of(model):
    named = {name for field in model._meta.get_fields() for name in (field.name, getattr(field, "attname", ""))}
    return {*named, *OF_FORMS} - {""}


def made(model):
    """An object of any model."""
    if (found := raw(model).first()) is not None:
        return found
    if model is Queue:
        return make_queue()
    if model is Schedule:
        return Schedule.objects.create(name="nightly", queue=made(Queue), action="resize", period=60)
    values = {}
    for field in model._meta.concrete_fields:
        given = not (field.default is NOT_PROVIDED and field.db_default is NOT_PROVIDED)
        if given or field.null or isinstance(field, models.AutoField) or getattr(field, "parent_link", None):
            continue
        if isinstance(field, models.ForeignKey):
            values[field.name] = made(field.related_model)
        elif isinstance(field, models.DateTimeField):
            values[field.name] = timezone.now()
        elif isinstance(field, models.UUIDField):
            values[field.name] = uuid.uuid4()
        elif isinstance(field, models.JSONField):
            values[field.name] = {}
        else:
            values[field.name] = "1"
    return raw(model).create(**values)


@each_model
def test_form_of_a_new_object_takes_any_values_of_its_fields_from_the_address(client, model):
    if model is Overview:
        with pytest.raises(NoReverseMatch):
            url_of(model, "add")
        return
    # Of all fields at once: each is read by itself, on all databases alike, which refuse some of the few.
    values = VALUES if connection.vendor == "postgresql" and model not in ALIKE[1:] else FEW
    assert not failing(client, url_of(model, "add"), [dict.fromkeys(fields_of(model), value) for value in values])


@pytest.mark.parametrize("page", ["change", "history", "delete"])
def test_pages_of_an_object_take_any_parameters(client, page):
    key = made(Task).pk
    assert not failing(client, url_of(Task, page, key), [dict.fromkeys(fields_of(Task), each) for each in FEW])


@pytest.mark.parametrize("model", KEYED, ids=lambda model: type(model._meta.pk).__name__)
def test_pages_of_an_object_take_any_key(client, model):
    # Servers take no longer addresses.
    for text in (each[:2000] for each in FEW if each):
        assert client.get(url_of(model, "change", text), follow=True).status_code < 500, text


@each_model
def test_list_takes_any_values_of_its_filters_from_the_address(client, model):
    if model is not Overview:
        made(model)
    given = [{name: each} for name in asked_of(model) for each in (HARD if "__" in name else FEW)]
    assert not failing(client, url_of(model, "changelist"), given)


def asked_of(model):
    """Return the parameters that the list of a model takes."""
    if model in ALIKE:
        return ["pk", "pk__in", "pk__gte", *(["state__exact", "condition", "q"] if model is ALIKE[0] else [])]
    if model is Overview:
        # It is no list, and filters nothing.
        return ["q"]
    looked_up = {f"{field}{lookup}" for field in LOOKED_UP[model] for lookup in LOOKUPS}
    if connection.vendor != "postgresql":
        # What differs is what a column of each kind takes.
        return sorted({"pk"} | looked_up)
    own = {each.parameter_name for each in filters_of(model) if not isinstance(each, str)}
    # What Django reads itself, it reads alike for all.
    of_lists = {*OF_LISTS} if model is Queue else {"q"}
    return sorted({"pk", "condition", "state"} | own | looked_up | of_lists)


def filters_of(model):
    """Return the filters of a list: paths of fields, and classes that have a parameter of their own."""
    return [each[0] if isinstance(each, tuple) else each for each in admin.site._registry[model].list_filter]


def filtered_by(model):
    """Return the paths of fields by which a list is filtered, with their kinds."""
    paths = {each for each in filters_of(model) if isinstance(each, str)}
    kinds = {path: type(get_fields_from_path(model, path)[-1]) for path in sorted(paths)}
    return {"pk": type(model._meta.pk), **kinds}


def looked_up():
    """Return, for each list, the fields that are asked with each lookup: one of each kind in all lists."""
    found, seen = {}, set()
    for model in MODELS:
        kinds = {kind: path for path, kind in filtered_by(model).items() if kind not in seen}
        found[model] = list(kinds.values())
        seen |= {*kinds}
    return found


LOOKED_UP = looked_up()


@pytest.mark.parametrize(
    ("model", "act"),
    [
        (Queue, "queue_resume"), (Task, "task_cancel"), (Task, "stator_retry"), (Schedule, "pause"),
        (Pause, "stator_end"), (Consumer, "delete_selected"), (TextKeyed, "stator_retry"),
        (UuidKeyed, "stator_pause"), (CodeKeyed, "stator_unlock"),
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
    assert 'value="exclusive" selected' in str(initial(client, Queue, kind="exclusive")["kind"])
    plain = Plain.objects.create(title="here")
    assert f'value="{plain.pk}"' in str(initial(client, OneToOneKeyed, plain=plain.pk)["plain"])
