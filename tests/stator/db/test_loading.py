"""Instances of claimed rows are what Django itself would have made of them."""

import pytest
from django.db.models.signals import post_init

from stator.db.loading import loader_of
from tests.testapp.basic import Step

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


def test_instance_can_be_saved_and_moved_by_hand():
    instance, _ = loaded(Step, Step.objects.create(name="a"))
    instance.name, instance.state = "b", "done"
    instance.save()
    found = Step.objects.get()
    assert (found.name, found.state, found.state_version) == ("b", "done", 1)


def test_model_without_additions_is_made_without_django():
    assert loader_of(Step) != Step.from_db


def test_receiver_of_a_signal_is_called():
    seen = []

    def receive(sender, instance, **values):
        seen.append(instance)

    post_init.connect(receive, sender=Step)
    try:
        instance, _ = loaded(Step, Step.objects.create(name="a"))
        assert any(one is instance for one in seen)
    finally:
        post_init.disconnect(receive, sender=Step)


@pytest.mark.parametrize("name", ["__init__", "__setattr__", "from_db"])
def test_what_a_model_adds_is_kept(name, monkeypatch):
    own = classmethod(lambda cls, *args, **kwargs: None) if name == "from_db" else lambda *args, **kwargs: None
    monkeypatch.setattr(Step, name, own, raising=False)
    assert loader_of(Step) == Step.from_db
