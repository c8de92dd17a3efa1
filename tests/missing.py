"""What tests import in place of what a deleted extension had (``bin/without``): a test that uses it is left out."""

import argparse
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.test import AsyncClient, Client

# The functions that it defined, and the options, columns and arguments of others that are its own; the fixtures of its
# tests, of which only a test's own arguments ask; its subcommands; what the addresses of its pages begin with.
GONE: set[str] = set()
FIXTURES: set[str] = set()
COMMANDS: set[str] = set()
PAGES: set[str] = set()

# The processes of pytest itself, not those that tests start.
_TESTING: set[int] = set()

# What a call, a queryset and a publication say of a name that they do not know.
UNKNOWN = re.compile(r"(?:keyword arguments?:?|Cannot resolve keyword|has no option|has no field named|has no) '(\w+)'")


# What an extension can give attributes to is defined in these packages.
OURS = ("stator", "tasks", "tests", "project")

# Functions of the product that refuse what they do not know, whatever asks for it: publications, declarations, claims.
REFUSE = ("tasks/messages.py", "tasks/actions/registry.py", "stator/querysets.py")


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
        if os.getpid() not in _TESTING or "PYTEST_CURRENT_TEST" not in os.environ:
            return self
        pytest.skip(f"{self.__name__} belongs to a deleted extension")

    __getitem__ = __iter__ = __len__ = __contains__ = __add__ = __sub__ = __mul__ = __rsub__ = __call__
    __index__ = __int__ = __float__ = __lt__ = __gt__ = __instancecheck__ = __enter__ = __exit__ = __call__

    def __next__(self) -> Any:
        self()
        raise StopIteration


def pytest_configure() -> None:
    """Leave out a test that asks for one of its pages, or calls one of its subcommands, whatever it makes of that."""
    _TESTING.add(os.getpid())
    check = argparse.ArgumentParser._check_value  # type: ignore[attr-defined]

    def check_value(parser: Any, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices and value in COMMANDS:
            pytest.skip(f"the subcommand {value} belongs to a deleted extension")
        check(parser, action, value)

    argparse.ArgumentParser._check_value = check_value  # type: ignore[attr-defined]
    for client in (Client, AsyncClient):
        client.request = _asking(client.request)  # type: ignore[method-assign]


def pytest_sessionstart() -> None:
    """Let the workers that tests put into the table be known, if no extension is left that shows processes."""
    from stator.rows.readings import READINGS, Reading
    from stator.rows.workers import Worker

    READINGS.setdefault("fleet", Reading(Worker, lambda *given: None))


def _asking(request: Any) -> Any:
    def ask(client: Any, **given: Any) -> Any:
        path = given.get("PATH_INFO") or given.get("path", "")
        if path.startswith(tuple(PAGES)):
            pytest.skip(f"{path} belongs to a deleted extension")
        return request(client, **given)

    return ask


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Leave out a test that itself, and nothing that is left, asks for such a name."""
    try:
        return (yield)
    except pytest.FixtureLookupError as error:
        if error.argname in FIXTURES:
            pytest.skip(f"the fixture {error.argname} belongs to a deleted extension")
        raise
    except Exception as error:
        if (name := _asked_for(error)) in GONE:
            pytest.skip(f"{name} belongs to a deleted extension")
        raise


def _asked_for(error: Exception) -> str:
    """Return the name that is unknown to what a test asked; empty if code that is left asked for it."""
    known = UNKNOWN.search(str(error))
    name = error.name if isinstance(error, AttributeError) and _is_ours(error.obj) else ""
    name = name or (known and known[1]) or ""
    root = Path(__file__).parent.parent
    paths = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)]
    return name if ours and ours[-1].startswith(("tests/", *REFUSE)) else ""


def _is_ours(asked: object) -> bool:
    """Return whether an extension may have given it attributes: a module, a class or an object of ours.

    ``None`` and what Django or Python make have none of them, so there a name is missing for another reason.
    """
    if isinstance(asked, ModuleType):
        return asked.__name__.split(".")[0] in OURS
    classes = asked.__mro__ if isinstance(asked, type) else type(asked).__mro__
    return any(each.__module__.split(".")[0] in OURS for each in classes)


pytest_runtest_setup = pytest_runtest_call


def __getattr__(name: str) -> Missing:
    if name.startswith(("__", "pytest_")):
        raise AttributeError(name)
    return Missing(name)
