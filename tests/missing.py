"""What tests import in place of what a deleted extension had (``bin/without``): a test that uses it is left out."""

import os
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

# The functions that it defined.
GONE: set[str] = set()


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
    """Leave out a test that itself, and nothing that is left, asks an object for such a function."""
    try:
        return (yield)
    except AttributeError as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        if error.name in GONE and "/tests/" in last.filename:
            pytest.skip(f"{error.name} belongs to a deleted extension")
        raise


pytest_runtest_setup = pytest_runtest_call


def __getattr__(name: str) -> Missing:
    if name.startswith(("__", "pytest_")):
        raise AttributeError(name)
    return Missing(name)
