"""The statements that a page takes, for tests of how many there are."""

import re
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

COUNT = re.compile(r"\bCOUNT\(")
# Of so many rows, of rows with these keys, or of the programs that asked for tasks in the last minute.
BOUND = re.compile(r"\bLIMIT \d+|\bIN \(\d+|\bseen\W+> ")


def sent(queries: CaptureQueriesContext) -> list[str]:
    """Return the statements that were captured, with the quotes of standard SQL."""
    return [query["sql"].replace("`", '"') for query in queries]


def statements(request: Callable[[], Any], status: int = 200) -> list[str]:
    """The statements that a request sends."""
    with CaptureQueriesContext(connection) as queries:
        response = request()
    assert response.status_code == status
    return [query["sql"] for query in queries]


def unbounded(asked: list[str]) -> list[str]:
    """Return the statements with a count that has no limit."""
    return [statement for statement in asked if len(COUNT.findall(statement)) > len(BOUND.findall(statement))]
