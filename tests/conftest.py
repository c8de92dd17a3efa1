"""What every test may use."""

import shutil

import pytest
from django.db import connection

from tests import emptying
from tests.processes import WorkerProcess, environment_for_subprocess
from tests.settings import TEST_DIRECTORY

VENDORS = ("postgresql", "sqlite")


def pytest_configure() -> None:
    emptying.install()
    TEST_DIRECTORY.mkdir(parents=True, exist_ok=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(TEST_DIRECTORY, ignore_errors=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = [vendor for vendor in VENDORS if item.get_closest_marker(vendor)]
    if wanted and connection.vendor not in wanted:
        pytest.skip(f"for {' and '.join(wanted)} only")


@pytest.fixture
def subprocess_environment(transactional_db: None) -> dict[str, str]:
    """The environment in which a process works on the databases of this test."""
    return environment_for_subprocess()


@pytest.fixture
def worker_process(transactional_db: None) -> type[WorkerProcess]:
    """Starts workers on the databases of this test: ``with worker_process("testapp.Widget") as worker:``."""
    return WorkerProcess
