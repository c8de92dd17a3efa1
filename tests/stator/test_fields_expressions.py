"""The framework's columns in Django's expressions, copies and pickles: as plain columns."""

import copy
import pickle
from typing import Any

import pytest
from django.core import serializers
from django.core.management import call_command
from django.db import models
from django.db.models import Case, Count, Exists, F, Max, OuterRef, Subquery, Value, When, Window
from django.db.models.functions import Cast, Coalesce, Concat, NullIf

from stator.db.interface import new_token
from stator.rows.columns import FRAMEWORK_COLUMNS
from tests.stator.making import ago, change, put, raw, row
from tests.testapp.basic import Step
from tests.testapp.keys import Branch, Heir, UuidKeyed
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db

NAMES = sorted({"state", *FRAMEWORK_COLUMNS})
# Some databases have no order of these.
UNORDERED = {"state_claim", "state_ready"}

columns = pytest.mark.parametrize("name", NAMES)


def plain(name: str) -> Any:
    """A column as an expression whose field is one of Django's."""
    kind = Step._meta.get_field(name).deconstruct()[1].rpartition(".")[2]
    return Cast(name, getattr(models, kind)(**{"max_length": 100} if name == "state" else {}))


EXPRESSIONS: dict[str, Any] = {
    "Coalesce, the plain column second": lambda name: Coalesce(name, plain(name)),
    "Coalesce, the plain column first": lambda name: Coalesce(plain(name), name),
    "NullIf": lambda name: NullIf(name, Case(When(pk=0, then=plain(name)), default=F(name))),
    "Case, the plain column second": lambda name: Case(When(pk=0, then=F(name)), default=plain(name)),
    "Case, the plain column first": lambda name: Case(When(pk=0, then=plain(name)), default=F(name)),
    "a subquery": lambda name: Coalesce(plain(name), Subquery(raw(Step).filter(pk=OuterRef("pk")).values(name))),
    "a window": lambda name: Window(Count(name)) if name in UNORDERED else Coalesce(plain(name), Window(Max(name))),
}


@columns
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_column_can_be_mixed_with_plain_columns(kind, name):
    step = Step.objects.create()
    assert Step.objects.annotate(found=EXPRESSIONS[kind](name)).get() == step


@columns
def test_column_is_grouped_aggregated_compared_and_united(name):
    step = Step.objects.create()
    assert [each["n"] for each in Step.objects.values(name).annotate(n=Count("pk"))] == [1]
    value = Step.objects.values_list(name, flat=True).get()
    if name not in UNORDERED:
        assert Step.objects.aggregate(found=Max(name)) == {"found": value}
    assert Step.objects.filter(**{name: F(name)}).exists() is (value is not None)
    same = raw(Step).filter(**{"pk": OuterRef("pk"), f"{name}__isnull": value is None})
    assert Step.objects.filter(Exists(same)).get() == step
    both = Step.objects.filter(pk=step.pk).union(Step.objects.filter(pk=0))
    assert list(both.values_list(name, flat=True)) == [value]
    assert Step.objects.only(name).get() == Step.objects.defer(name).get() == step


@columns
def test_column_is_read_across_relations_and_from_the_parent_of_a_child(name):
    rollout = Rollout.objects.create(build=Build.objects.create())
    Branch.objects.create()
    for rows, path in [(Rollout.objects, f"build__{name}"), (Branch.objects, f"bigkeyed_ptr__{name}")]:
        found = rows.annotate(there=F(path), either=Coalesce(path, name)).order_by(path)
        assert found.values_list("there", path).get() == (found.get().there,) * 2
    assert Rollout.objects.filter(**{f"build__{name}__isnull": rollout.state_attempted is not None}).count() <= 1


@columns
def test_field_is_plain_once_it_is_copied(name):
    field = Step._meta.get_field(name)
    assert type(copy.copy(field)) is field.__class__ is getattr(models, type(copy.copy(field)).__name__)
    assert isinstance(field, type(field))
    # As in a class that inherits an abstract one.
    assert type(copy.deepcopy(field)) is type(field)
    assert pickle.loads(pickle.dumps(field)) is field


QUERYSETS: dict[str, Any] = {
    "rows": lambda rows: rows,
    "values": lambda rows: rows.values("pk", "state", "state_changed"),
    "a list of values": lambda rows: rows.values_list("state", flat=True),
    "annotated": lambda rows: rows.annotate(told=Concat("state", Value("!"))),
    "deferred": lambda rows: rows.defer("state_changed", "state"),
    "united": lambda rows: rows.filter(pk=0).union(rows),
    "related": lambda rows: rows.filter(pk__in=rows.values("pk")),
    "none": lambda rows: rows.none(),
}


@pytest.mark.parametrize("kind", QUERYSETS)
@pytest.mark.parametrize("manager", ["objects", "stator"])
@pytest.mark.parametrize("model", [Step, Branch, Heir])
def test_queryset_is_pickled_and_copied(model, manager, kind):
    model.objects.create()
    queryset = QUERYSETS[kind](getattr(model, manager).all())
    for twin in (pickle.loads(pickle.dumps(queryset)), copy.deepcopy(queryset), copy.copy(queryset)):
        assert type(twin) is type(queryset)
        assert list(twin) == list(twin.all()) == list(queryset)


# Fixtures: all columns are loaded as they were dumped, into new rows and over existing ones


# Whole seconds, because some formats have no more than milliseconds.
BEFALLEN: dict[str, Any] = {
    "state_ready": False,
    "state_changed": ago(500).replace(microsecond=0),
    "state_attempted": ago(400).replace(microsecond=0),
    "state_locked_until": ago(-60).replace(microsecond=0),
    "state_next_attempt": ago(-600).replace(microsecond=0),
    "state_attempts": 3,
    "state_failures": 2,
    "state_crashes": 1,
    "state_version": 4,
    "state_claim": new_token("0" * 12),
}
LATER: dict[str, dict[str, Any]] = {
    "no row": {},
    "the row in another state": {"state": "last", "state_ready": True, "state_version": 9, "state_claim": None},
    "the row in the same state": {"state_ready": True, "state_attempts": 0, "state_changed": ago(1)},
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("form", ["json", "jsonl", "xml", "yaml"])
@pytest.mark.parametrize("model", [UuidKeyed, Branch])
def test_loaddata_brings_back_what_dumpdata_wrote(model, form, later, tmp_path):
    original = put(model, state="second", **BEFALLEN)
    path = str(tmp_path / f"rows.{form}")
    models = ["testapp.bigkeyed", "testapp.branch"] if model is Branch else ["testapp.uuidkeyed"]
    call_command("dumpdata", *models, format=form, output=path, verbosity=0)
    if later == "no row":
        raw(model).all().delete()
    else:
        change(original, **LATER[later])
    call_command("loaddata", path, verbosity=0)
    found = row(original)
    assert {name: getattr(found, name) for name in ("state", *BEFALLEN)} == {"state": "second", **BEFALLEN}


def test_loaded_object_knows_the_state_that_it_brought():
    step = put(Step, state="done")
    [loaded] = serializers.deserialize("json", serializers.serialize("json", [step]))
    change(step, state="new")
    loaded.save()
    loaded.object.state = "failed"
    loaded.object.save()
    assert (row(step).state, row(step).state_version) == ("failed", 1)


def test_fixture_with_some_columns_resets_the_others():
    step = put(Step, state="done", **BEFALLEN)
    [loaded] = serializers.deserialize(
        "python", [{"model": "testapp.step", "pk": step.pk, "fields": {"state": "slow"}}]
    )
    loaded.save()
    found = row(step)
    assert (found.state, found.state_ready, found.state_claim, found.state_version) == ("slow", True, None, 0)
    assert found.state_changed > ago(60)
