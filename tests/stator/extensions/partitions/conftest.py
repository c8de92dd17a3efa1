"""Upkeep that waits for its locks as long as a crowded machine needs."""

import pytest

from stator.extensions.partitions import upkeep


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(upkeep, "WAIT", 30.0)
