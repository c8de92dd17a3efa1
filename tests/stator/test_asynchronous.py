"""Methods for async code: a synchronous handler cannot call one without a word, and a program may."""

import asyncio

import pytest

from stator.asynchronous import in_thread
from stator.testing import attempt
from tests.stator.extensions.steps.test_attempt import clean, scripted  # noqa: F401 - a fixture
from tests.testapp.stepped import Purchase, anoted, calls

pytestmark = pytest.mark.django_db


def say_nothing(order):
    order.stator.astep("charge", anoted(order, "charge"))
    return "paid"


@pytest.mark.parametrize(
    ("script", "word"),
    [
        (say_nothing, "astep() does nothing in a synchronous handler; call step() there"),
        (lambda order: order.stator.aextend(5), "aextend() does nothing in a synchronous handler; call extend() there"),
        pytest.param(
            lambda order: order.aexplain(),
            "aexplain() does nothing in a synchronous handler; call explain() there",
            marks=pytest.mark.needs("problems"),
        ),
        (
            lambda order: Purchase.atransition_perform_queryset(Purchase.objects.all(), "paid"),
            "atransition_perform_queryset() does nothing in a synchronous handler; "
            "call transition_perform_queryset() there",
        ),
    ],
)
def test_synchronous_handler_gets_an_error_in_place_of_a_coroutine(script, word):
    order = scripted(script)
    failure = attempt(order).failure
    assert (failure.kind, failure.message) == ("RuntimeError", word)
    assert calls == []


class Counter:
    def count(self):
        return 3

    acount = in_thread(count)


def test_synchronous_handler_may_run_a_loop_of_its_own():
    async def main():
        return await Counter().acount()

    order = scripted(lambda order: "paid" if asyncio.run(main()) == 3 else None)
    assert attempt(order).failure is None


def test_program_may_pass_the_coroutine_to_a_loop():
    assert asyncio.run(Counter().acount()) == 3
    assert asyncio.iscoroutinefunction(Counter.acount)
