"""The statements of one thread: a list of them, and ones that fail as in an outage before the database sees them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection


@contextmanager
def sent() -> Iterator[list[str]]:
    """Collect the statements of the block, Django's and the framework's own."""
    found: list[str] = []

    def through_django(execute: Any, statement: str, *others: Any) -> Any:
        found.append(statement)
        return execute(statement, *others)

    with pytest.MonkeyPatch.context() as patched, connection.execute_wrapper(through_django):
        if connection.vendor == "postgresql":
            # The framework's own statements pass Django's cursor by.
            _watch(patched, "stator.db.session.send_many", found.append)
        yield found


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool], counts: Callable[[], bool]
) -> Iterator[list[str]]:
    """Have the n-th statement fail if ``fails(n)``, from 0 on; gives the statements sent while ``counts()``."""
    seen: list[str] = []

    def note(statement: str) -> None:
        if counts():
            seen.append(statement)
            if fails(len(seen) - 1):
                raise OperationalError("the connection was cut")

    def through_django(execute: Any, statement: str, *others: Any) -> Any:
        note(statement)
        return execute(statement, *others)

    with monkeypatch.context() as patched, connection.execute_wrapper(through_django):
        if connection.vendor == "postgresql":
            # The framework's own statements pass Django's cursor by.
            for module in ("stator.db.session", "stator.db.postgresql"):
                _watch(patched, f"{module}.send", note)
        yield seen


def _watch(patched: pytest.MonkeyPatch, name: str, note: Callable[[str], None]) -> None:
    module, _, function = name.rpartition(".")
    send = getattr(pytest.importorskip(module), function)

    def noted(connection: Any, statement: str, *others: Any) -> Any:
        note(statement)
        return send(connection, statement, *others)

    patched.setattr(name, noted)
