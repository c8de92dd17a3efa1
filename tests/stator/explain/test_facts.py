"""Facts about one object are read in few statements."""

import pytest

from stator.explain import explain
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
