"""Tables of two models."""

import pytest

from stator.worker.tables import Tables
from tests.stator.making import operations_of
from tests.stator.worker.lacking import run
from tests.testapp.models import Line, SyncLine


@pytest.fixture
def pair():
    return operations_of(Line), operations_of(SyncLine)


@pytest.fixture
def tables(pair):
    return Tables(list(pair), run)
