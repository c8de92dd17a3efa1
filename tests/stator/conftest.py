"""Fixtures for the tests of the framework."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from stator.conf import Settings
from stator.db import operations_for, portable
from stator.db.interface import Operations, new_worker_id
from stator.scopes import Scope
from tests.emptying import empty
from tests.sizes import PATIENCE
from tests.stator.making import LEASED, put, raw
from tests.testapp.basic import Author, DeedGraph, Page


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that is a coroutine function runs on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), 2 * PATIENCE))
    return True


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The default database without a transaction around the test, as a worker has it; emptied afterwards.

    In place of the fixture of pytest-django, which truncates: a quarter of a second, for some hundred tests.
    """
    with django_db_blocker.unblock():
        yield
        empty("default")


@pytest.fixture
def deeds(monkeypatch):
    """The functions that handlers of :class:`Deed` call, by name."""
    made = {}
    monkeypatch.setattr(DeedGraph, "deeds", made)
    return made


@pytest.fixture(params=["vendor", "portable"])
def operations(request):
    """Operations on a model, as the vendor of the database has them and as they are everywhere."""

    def make(model):
        if request.param == "vendor":
            return operations_for(model, Settings(), new_worker_id())
        return Operations(model, Scope("default"), Settings(), new_worker_id(), portable.parts_of)

    return make


@pytest.fixture
def page():
    """A page that a worker holds, with an author who reads it."""
    eve = Author.objects.create(name="eve")
    page = put(Page, title="a", author=eve)
    page.readers.add(eve)
    raw(Page).filter(pk=page.pk).update(**LEASED)
    return page
