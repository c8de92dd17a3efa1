"""Statements that lost to another transaction are repeated, but not for ever and not inside a transaction."""

import pytest
from django.db import OperationalError, transaction

from stator.db.repeat import TRIES, retried
from tests.stator.making import operations_of
from tests.testapp.basic import Step

pytestmark = pytest.mark.django_db(transaction=True)


class Losing:
    def __init__(self, times):
        self.times, self.calls = times, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.times:
            error = OperationalError("database is locked")
            error.__cause__ = Exception()
            error.__cause__.sqlstate = "40P01"
            raise error
        return "done"


def test_statement_is_repeated_until_it_wins():
    assert retried(operations_of(Step), Losing(TRIES - 1))() == "done"


def test_after_some_tries_its_error_is_raised():
    losing = Losing(TRIES)
    with pytest.raises(OperationalError):
        retried(operations_of(Step), losing)()
    assert losing.calls == TRIES


def test_inside_a_transaction_the_caller_repeats_all_of_it():
    losing = Losing(1)
    with pytest.raises(OperationalError), transaction.atomic():
        retried(operations_of(Step), losing)()
    assert losing.calls == 1
