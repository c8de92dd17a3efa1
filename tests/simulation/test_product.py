"""The simulated protocol is the product's: both are led through the same schedules, and agree after every statement."""

import sqlite3
from contextlib import closing
from functools import partial

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.simulation.broken import GuardByState, ReapAtWill
from tests.simulation.product import Both
from tests.simulation.schedule import schedule_of, simulate
from tests.simulation.store import Store

# The database's clock is simulated, and only SQLite lets a session have one of its own.
pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]

SCHEDULES = 40
BLOCKS = 4


@pytest.fixture(autouse=True, scope="module")
def _clock(django_db_setup, django_db_blocker):
    """The simulated clock ends with the connection that has it: SQLite does not give a built-in function back."""
    yield
    with django_db_blocker.unblock(), closing(sqlite3.connect(connection.settings_dict["NAME"], uri=True)):
        # The database is in memory, and lives for as long as anybody is connected; Django would keep its connection.
        BaseDatabaseWrapper.close(connection)
        connection.ensure_connection()
    with django_db_blocker.unblock():
        assert connection.introspection.table_names()


def plain(seed):
    """A schedule over rows without keys and priorities: the product has those in ``tasks`` only."""
    schedule = schedule_of(seed)
    return bytes([schedule[0] % 2]) + schedule[1:]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_product_does_as_the_protocol_after_every_statement(block):
    for seed in range(block * SCHEDULES, (block + 1) * SCHEDULES):
        run = simulate(plain(seed), partial(Both, Store))
        assert not run.violations, f"seed {seed}\n{run.story()}"


@pytest.mark.parametrize("broken", [GuardByState, ReapAtWill])
def test_a_model_that_is_not_the_product_is_noticed(broken):
    with pytest.raises(AssertionError):
        for seed in range(SCHEDULES):
            simulate(plain(seed), partial(Both, broken))
