"""What tests import in place of what a deleted extension had (``bin/without``): a test that uses it is left out."""

import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The functions that it defined, and the options, columns and arguments of others that are its own.
GONE: set[str] = set()

# What a call, a queryset and a publication say of a name that they do not know.
UNKNOWN = re.compile(
    r"unexpected keyword arguments?:? '(\w+)'|Cannot resolve keyword '(\w+)'|a task has no option '(\w+)'"
)


class Missing:
    """Stands for one name of a deleted extension."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return self.__name__

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if "PYTEST_CURRENT_TEST" not in os.environ:
            return self
        pytest.skip(f"{self.__name__} belongs to a deleted extension")

    __getitem__ = __iter__ = __len__ = __contains__ = __add__ = __sub__ = __mul__ = __rsub__ = __call__
    __index__ = __int__ = __float__ = __lt__ = __gt__ = __instancecheck__ = __enter__ = __exit__ = __call__


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Leave out a test that itself, and nothing that is left, asks for such a name."""
    try:
        return (yield)
    except Exception as error:
        if (name := _asked_for(error)) in GONE:
            pytest.skip(f"{name} belongs to a deleted extension")
        raise


def _asked_for(error: Exception) -> str:
    """Return the name that is unknown to what a test asked; empty if code that is left asked for it."""
    known = UNKNOWN.search(str(error))
    name = (error.name if isinstance(error, AttributeError) else known and known[known.lastindex or 0]) or ""
    root = Path(__file__).parent.parent
    paths = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)]
    # Publications are refused by a function of the product, whatever they ask for.
    return name if ours and ours[-1].startswith(("tests/", "tasks/messages.py")) else ""


pytest_runtest_setup = pytest_runtest_call


def __getattr__(name: str) -> Missing:
    if name.startswith(("__", "pytest_")):
        raise AttributeError(name)
    return Missing(name)
