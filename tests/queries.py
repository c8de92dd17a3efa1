"""The statements that a page takes, for tests of how many there are."""

import re
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

COUNT = re.compile(r"\bCOUNT\(")
# Of so many rows, of rows with these keys, or of the programs that asked for tasks in the last minute.
BOUND = re.compile(r"\bLIMIT \d+|\bIN \(\d+|\bseen\W+> ")


def analyze(*models: Any) -> None:
    """Have the database count the rows of these tables and the values in their indexes, for its plans."""
    with connection.cursor() as cursor:
        for model in models:
            cursor.execute(f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}{model._meta.db_table}")


def sent(queries: CaptureQueriesContext) -> list[str]:
    """Return the statements that were captured, with the quotes of standard SQL."""
    return [query["sql"].replace("`", '"') for query in queries]


def statements(request: Callable[[], Any], status: int = 200) -> list[str]:
    """The statements that a request sends."""
    with CaptureQueriesContext(connection) as queries:
        response = request()
    assert response.status_code == status
    return sent(queries)


def unbounded(asked: list[str]) -> list[str]:
    """Return the statements with a count that has no limit."""
    return [statement for statement in asked if len(COUNT.findall(statement)) > len(BOUND.findall(statement))]
