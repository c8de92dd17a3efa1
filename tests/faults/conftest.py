"""What the fault tests share."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fleet import Fleet
from tests.faults.watch import Watch


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
