"""Instances of claimed rows are what Django itself would have made of them."""

import pytest
from django.db.models.signals import post_init
from django.test.utils import isolate_apps

from stator.db.compiler import compiler_of
from stator.db.instances import loader_of
from stator.models import Report, StateField, StatorModel
from stator.runner import StatorRunner
from tests.stator.making import ago, automatic, operations_of, put, raw
from tests.stator.running import connected, hearing
from tests.testapp.basic import Step, StepGraph
from tests.testapp.keys import Code, CodeKeyed
from tests.testapp.power import Crate, Transfer

pytestmark = pytest.mark.django_db


def loaded(model, made):
    """The instance made of the row of ``made``, and the one Django makes of it."""
    fields = model._meta.concrete_fields
    names = [field.attname for field in fields]
    django = model._base_manager.get(pk=made.pk)
    row = tuple(getattr(django, name) for name in names)
    return loader_of(model)("default", names, row), django


def test_instance_is_the_one_that_django_makes():
    instance, django = loaded(Step, Step.objects.create(name="a"))
    assert type(instance) is Step
    assert instance == django
    values, expected = dict(vars(instance)), dict(vars(django))
    state, wanted = values.pop("_state"), expected.pop("_state")
    assert values == expected
    assert (state.adding, state.db, state.fields_cache) == (wanted.adding, wanted.db, {})
    # A receiver of the signal is called.
    with hearing(post_init, Step) as seen:
        instance, _ = loaded(Step, django)
    assert any(values["instance"] is instance for _, values in seen)


@pytest.mark.parametrize("name", ["__init__", "__setattr__", "from_db"])
def test_what_a_model_adds_is_kept(name, monkeypatch):
    own = classmethod(lambda cls, *args, **kwargs: None) if name == "from_db" else lambda *args, **kwargs: None
    monkeypatch.setattr(Step, name, own, raising=False)
    assert loader_of(Step) == Step.from_db


@isolate_apps("tests.testapp")
def test_only_what_a_model_adds_takes_the_time_of_a_call():
    class Noting:
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.noted = True

    class Beside(StatorModel, Noting):
        state = StateField(StepGraph)

        class Meta:
            app_label = "testapp"

    assert loader_of(Step) != Step.from_db
    assert loader_of(Beside) == Beside.from_db


def test_rows_of_one_moment_whose_keys_have_no_order_are_claimed():
    moment, keys = ago(10), ["b", "a", "c"]
    for key in keys:
        put(CodeKeyed, code=Code(key), state_changed=moment)
    operations = operations_of(CodeKeyed)
    assert [str(claim.pk) for claim in operations.claim(automatic(operations), 5)] == sorted(keys)


# Rows that the project cannot read


@pytest.fixture
def garbled(monkeypatch):
    """Has the names of models be of a kind that the project's own field cannot always read."""

    def read(value, expression, connection):
        if value == "garbled":
            raise ValueError("cannot decrypt")
        return value

    def make(model, field="name"):
        monkeypatch.setattr(model._meta.get_field(field), "from_db_value", read, raising=False)

    # What converts the values of a model's columns is looked up once.
    compiler_of.cache_clear()
    yield make
    compiler_of.cache_clear()


def refuse_to_be_made(sender, instance, **values):
    if instance.name == "garbled":
        raise ValueError("cannot decrypt")


@pytest.fixture(params=["by its field", "by a receiver"])
def unreadable(request, garbled):
    """Has rows of a model named ``garbled`` be unreadable."""
    if request.param == "by its field":
        garbled(Step)
        yield
    else:
        with connected(post_init, refuse_to_be_made, sender=Step):
            yield


def some_steps():
    # Made past the model, which could not be made either.
    names = ["a", "b", "garbled", "c"]
    return [pk for name in names for pk in [raw(Step).create().pk] if raw(Step).filter(pk=pk).update(name=name)]


@pytest.mark.parametrize("implementation", ["vendor", "portable"])
def test_row_that_cannot_be_read_is_claimed_with_the_error_beside_the_others(unreadable, implementation):
    pks = some_steps()
    operations = operations_of(Step, implementation)
    claims = operations.claim(automatic(operations), 9)
    assert [claim.pk for claim in claims] == pks
    assert [str(claim.unreadable) if claim.unreadable else None for claim in claims] == [
        None, None, "cannot decrypt", None,
    ]  # fmt: skip
    assert [claim.instance.__dict__["name"] for claim in claims if not claim.unreadable] == ["a", "b", "c"]
    assert all(claim.state is StepGraph.new and claim.attempt == 1 for claim in claims)


@pytest.mark.parametrize("model", [Transfer, Crate], ids=["in a transaction", "in a batch"])
def test_object_that_cannot_be_read_spoils_no_other(garbled, model):
    rows = [raw(model).create(deed=deed) for deed in ("", "garbled", "")]
    garbled(model, "deed")
    assert StatorRunner([model]).run_single_cycle() == 3
    assert list(raw(model).order_by("pk").values_list("state_failures", flat=True)) == [0, 1, 0]
    assert Report.objects.get().object_pk == str(rows[1].pk)
