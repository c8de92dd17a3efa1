"""The statements of an ordinary save of a managed object."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.stator.making import automatic, operations_of, put, row
from tests.testapp.basic import Page, Step

pytestmark = pytest.mark.django_db(transaction=True)


def sent(instance, *fields):
    """The verbs of the statements of a save."""
    with CaptureQueriesContext(connection) as queries:
        instance.save(update_fields=fields or None)
    return [query["sql"].split()[0] for query in queries]


@pytest.mark.parametrize("fields", [["name"], []], ids=["one field", "all of them"])
def test_save_is_one_statement_without_a_transaction(fields):
    step = put(Step)
    step.name = "b"
    assert sent(step, *fields) == ["UPDATE"]
    assert row(step).name == "b"


def test_so_is_that_of_a_claimed_object():
    put(Step)
    operations = operations_of(Step)
    [claim] = operations.claim(automatic(operations), 1)
    claim.instance.stator = claim
    claim.instance.name = "b"
    assert sent(claim.instance, "name") == ["UPDATE"]
    assert row(claim.instance).name == "b"


def test_save_that_moves_is_a_transaction():
    page = Page.objects.create(title="a")
    page.state = "review"
    page.title = "b"
    verbs = sent(page)
    assert verbs[0] == "BEGIN"
    assert verbs.count("UPDATE") == verbs[: verbs.index("COMMIT")].count("UPDATE") == 2
    assert (row(page).state, row(page).title) == ("review", "b")
