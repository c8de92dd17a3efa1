"""Conditions for many rows are counted in few statements."""

import pytest

from stator.explain import explain_counts
from tests.stator.making import put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db


def test_counts_take_a_handful_of_statements_whatever_the_number(crew, django_assert_max_num_queries):
    for tenant in range(20):
        put(Errand, tenant=tenant)
    Errand.stator.pause(where={"tenant__lt": 5})
    with django_assert_max_num_queries(4):
        assert Errand.stator.explain_counts() == {"in_line": 15, "paused": 5}
    assert explain_counts(Errand.objects.filter(tenant__in=[1, 2, 9])) == {"paused": 2, "in_line": 1}
    assert explain_counts(Errand.objects.none()) == {}
