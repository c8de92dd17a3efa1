"""Fixtures for the fault tests."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.faults.fleet import Fleet
from tests.faults.servers import OPTIONS, default_database_on, new_server, variables_for
from tests.faults.watch import Watch
from tests.servers.postgres import temporary_server
from tests.servers.user import DATABASE
from tests.testapp.faults import Effect, Event, Job, ThreadJob


@pytest.fixture
def watch(transactional_db: None) -> Iterator[Callable[..., Watch]]:
    """Keeps the history of the given models until the end of the test: ``watch(Job)``."""
    with ExitStack() as stack:
        yield lambda *models: stack.enter_context(Watch(*models))


@pytest.fixture
def fleet(watch: Any) -> Iterator[Callable[..., Fleet]]:
    """Workers on the databases of the test, ended before its triggers go: ``fleet("testapp.Job").start()``."""
    with ExitStack() as stack:
        yield lambda *labels, **variables: stack.enter_context(Fleet(*labels, **variables))


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for which handlers wait; ``gate.touch()`` lets them go on."""
    return tmp_path / "gate"


@pytest.fixture
def thorough() -> bool:
    """Whether this is a long run, of the size that RELIABILITY asks for, instead of one before a commit."""
    return bool(os.environ.get("CHAOS"))


@pytest.fixture(scope="session")
def server(django_db_blocker: Any) -> Iterator[Any]:
    """A server that the tests of this process alone use."""
    with new_server() as server:
        server.create_database(DATABASE)
        with django_db_blocker.unblock(), default_database_on(server):
            call_command("migrate", verbosity=0, run_syncdb=True)
        yield server


@pytest.fixture
def own(server: Any, transactional_db: None) -> Iterator[dict[str, str]]:
    """Has the default database on that server, with empty tables; gives the variables that send workers there."""
    with default_database_on(server):
        for model in (Job, ThreadJob, Event, Effect):
            model.objects.all().delete()
        yield variables_for(server)


@pytest.fixture
def standby(own: Any, server: Any) -> Iterator[Any]:
    """A hot standby of the server of the test."""
    with temporary_server(OPTIONS, primary=server) as standby:
        yield standby
