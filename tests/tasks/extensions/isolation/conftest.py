"""Isolated processes use the databases of the test."""

import pytest

from tests.processes import environment_for_subprocess


@pytest.fixture
def databases_of_the_test(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_for_subprocess().items():
        monkeypatch.setenv(name, value)
