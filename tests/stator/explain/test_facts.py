"""Facts about objects, one or many, are read in few statements."""

import pytest

from stator.explain import explain, explain_counts
from tests.stator.explain.errands import held
from tests.stator.making import ago, put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"state": "limited"},
        {"state": "done"},
        held(),
        {"state_ready": False, "state_next_attempt": ago(-86400)},
        {"state_crashes": 3},
    ],
)
def test_at_most_five_statements(crew, columns, django_assert_max_num_queries):
    errand = put(Errand, tenant=3, **columns)
    Errand.stator.pause(where={"tenant": 4})
    Errand.stator.pause(where={"tenant__lt": 0})
    with django_assert_max_num_queries(5):
        explain(Errand, errand.pk)


# Conditions for many rows are counted in few statements


def test_counts_take_a_handful_of_statements_whatever_the_number(crew, django_assert_max_num_queries):
    for tenant in range(20):
        put(Errand, tenant=tenant)
    Errand.stator.pause(where={"tenant__lt": 5})
    with django_assert_max_num_queries(4):
        assert Errand.stator.explain_counts() == {"in_line": 15, "paused": 5}
    assert explain_counts(Errand.objects.filter(tenant__in=[1, 2, 9])) == {"paused": 2, "in_line": 1}
    assert explain_counts(Errand.objects.none()) == {}
