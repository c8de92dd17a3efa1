"""Counting of the statements that an operation sends, also of those that do not go through Django's cursor."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from stator.db import postgresql, session


@pytest.fixture
def count(monkeypatch):
    """``count(work)``: the statements that ``work`` sends, and what it returns."""
    own = []
    send = session.send

    def noted(connection, statement, params):
        own.append(statement)
        return send(connection, statement, params)

    for module in (session, postgresql):
        monkeypatch.setattr(module, "send", noted)

    def counted(work):
        own.clear()
        with CaptureQueriesContext(connection) as queries:
            result = work()
        # A wake-up of workers is sent at most every few milliseconds, whatever the operation.
        through_django = [query["sql"] for query in queries if "pg_notify" not in query["sql"]]
        return [*through_django, *own], result

    return counted
