"""The framework's columns in Django's expressions, copies and pickles: as plain columns."""

import copy
import pickle
from typing import Any

import pytest
from django.db import models
from django.db.models import Case, Count, Exists, F, Max, OuterRef, Subquery, Value, When, Window
from django.db.models.functions import Cast, Coalesce, Concat

from stator.rows.beginning import FRAMEWORK_COLUMNS
from tests.stator.making import raw
from tests.testapp.basic import Step
from tests.testapp.keys import Branch
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db

NAMES = sorted({"state", *FRAMEWORK_COLUMNS})
# Some databases have no order of these.
UNORDERED = {"state_claim", "state_ready"}


def plain(name: str) -> Any:
    """A column as an expression whose field is one of Django's."""
    kind = Step._meta.get_field(name).deconstruct()[1].rpartition(".")[2]
    return Cast(name, getattr(models, kind)(**{"max_length": 100} if name == "state" else {}))


EXPRESSIONS: dict[str, Any] = {
    "Coalesce, the plain column second": lambda name: Coalesce(name, plain(name)),
    "Case, the plain column second": lambda name: Case(When(pk=0, then=F(name)), default=plain(name)),
    "a subquery": lambda name: Coalesce(plain(name), Subquery(raw(Step).filter(pk=OuterRef("pk")).values(name))),
    "a window": lambda name: Window(Count(name)) if name in UNORDERED else Coalesce(plain(name), Window(Max(name))),
}


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_columns_can_be_mixed_with_plain_columns(kind):
    step = Step.objects.create()
    found = {f"found_{name}": EXPRESSIONS[kind](name) for name in NAMES}
    assert Step.objects.annotate(**found).get() == step


@pytest.mark.parametrize("name", NAMES)
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


def test_columns_are_read_across_relations_and_from_the_parent_of_a_child():
    Rollout.objects.create(build=Build.objects.create())
    Branch.objects.create()
    for name in NAMES:
        for rows, path in [(Rollout.objects, f"build__{name}"), (Branch.objects, f"bigkeyed_ptr__{name}")]:
            found = rows.annotate(there=F(path), either=Coalesce(path, name)).order_by(path)
            assert found.values_list("there", path).get() == (found.get().there,) * 2


@pytest.mark.parametrize("name", NAMES)
def test_field_is_plain_once_it_is_copied(name):
    field = Step._meta.get_field(name)
    assert type(copy.copy(field)) is field.__class__ is getattr(models, type(copy.copy(field)).__name__)
    assert isinstance(field, type(field))
    # As in a class that inherits an abstract one.
    assert type(copy.deepcopy(field)) is type(field)
    assert pickle.loads(pickle.dumps(field)) is field


QUERYSETS: dict[str, Any] = {
    "rows": lambda rows: rows,
    "a list of values": lambda rows: rows.values_list("state", flat=True),
    "annotated": lambda rows: rows.annotate(told=Concat("state", Value("!"))),
    "deferred": lambda rows: rows.defer("state_changed", "state"),
    "united": lambda rows: rows.filter(pk=0).union(rows),
}


@pytest.mark.parametrize("kind", QUERYSETS)
@pytest.mark.parametrize("manager", [Step.stator, Branch.objects], ids=str)
def test_queryset_is_pickled_and_copied(manager, kind):
    manager.model.objects.create()
    queryset = QUERYSETS[kind](manager.all())
    for twin in (pickle.loads(pickle.dumps(queryset)), copy.deepcopy(queryset), copy.copy(queryset)):
        assert type(twin) is type(queryset)
        assert list(twin) == list(twin.all()) == list(queryset)
