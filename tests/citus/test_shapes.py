"""What :mod:`tests.shapes` says of a statement, said by the planner of Citus."""

import pytest
from django.db import connections
from django.db.utils import NotSupportedError

from tests.citus.conftest import run
from tests.test_shapes import STATEMENTS

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]


def test_planner_refuses_these_shapes_and_no_others(schema: str) -> None:
    run(schema, "CREATE TABLE t (id bigint, at timestamptz, due timestamptz, n integer)")
    judged = []
    with connections[schema].cursor() as cursor:
        for statement, refused in STATEMENTS:
            try:
                cursor.execute(statement)
            except NotSupportedError as error:
                judged.append((statement, bool(refused), str(error)))
            else:
                judged.append((statement, not refused, "accepted"))
    assert [each for each in judged if not each[1]] == []
