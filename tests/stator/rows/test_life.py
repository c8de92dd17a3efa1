"""What is remembered beside a row belongs to a life, a visit and a wish, whatever kind of record it is."""

import pytest

from stator.rows.life import life_of
from stator.testing import attempt, steps
from tests.stator.making import raw, row
from tests.testapp.lives import Contract, NumberedContract, PartContract
from tests.testapp.stepped import calls

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clean():
    yield
    calls.clear()


def keys():
    """The idempotency keys of the calls so far."""
    return [key for _, key in calls]


def named(model):
    """The key that its people give an object."""
    return {Contract: {"name": "a"}, PartContract: {"book": 1, "number": 2}, NumberedContract: {}}[model]


def made(model=Contract, **given):
    return model.objects.create(**named(model), **given)


@pytest.mark.parametrize("model", [Contract, PartContract])
def test_each_life_of_a_key_that_people_choose_has_a_number_of_its_own(model):
    first = life_of(row(made(model)))
    raw(model)._raw_delete("default")
    [again] = model.objects.bulk_create([model(**named(model))])
    assert 0 != first.number != life_of(row(again)).number != 0


def test_keys_of_the_database_pay_nothing():
    assert row(made(NumberedContract)).state_life is None


@pytest.mark.parametrize("model", [Contract, PartContract, NumberedContract])
def test_new_wish_has_steps_and_a_key_of_its_own_in_the_same_visit(model):
    one = made(model)
    attempt(one)
    one = row(one)
    one.amount = 2
    one.save()
    attempt(row(one))
    assert [name for name, _ in calls] == ["price", "price"]
    assert len(set(keys())) == 2
    assert list(steps(row(one))) == ["price"]
    now = row(one)
    assert (now.state, now.state_version) == ("drafted", 0)
    # A change back is a new wish too.
    model.objects.filter(pk=one.pk).update(amount=1)
    attempt(row(one))
    attempt(row(one))
    assert len(calls) == len(set(keys())) == 3
