"""The order by priority: the same in Python, in the database and in an index."""

import pytest

from stator.rows.indexes import line_of
from stator.rows.priorities import priority_of
from tests.stator.making import automatic, operations_of
from tests.testapp.fairness import Appointment, Consignment, Enquiry, Rescue, Ticket

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("urgency", [None, -(2**31), 0, 2**31 - 1])
def test_number_of_a_row_is_the_same_in_python_and_in_the_database(urgency):
    rescue = Rescue.objects.create(urgency=urgency)
    priority = priority_of(Rescue)
    assert Rescue.objects.values_list(priority.expression).get() == (priority.place(rescue.urgency),)


def test_column_that_sorts_as_it_is_stands_for_itself():
    assert priority_of(Enquiry) is None
    assert [str(priority_of(model).expression) for model in (Ticket, Consignment)] == ["F(urgency)"] * 2


@pytest.mark.sqlite
@pytest.mark.parametrize("model", [Ticket, Rescue, Appointment])
def test_sqlite_walks_the_index_and_sorts_nothing(model):
    operations = operations_of(model)
    rows = operations.open_rows(automatic(operations)).order_by(*line_of(model))
    plan = rows.values("pk")[:10].explain()
    assert "USING INDEX st_ready" in plan or "USING COVERING INDEX st_ready" in plan
    assert "TEMP B-TREE" not in plan
