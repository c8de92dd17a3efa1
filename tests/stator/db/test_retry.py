"""Which errors mean that the database is away: those of Django, and of a driver where Django lets them pass."""

import sqlite3

import pytest
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError

from stator.db.retry import is_outage


class DriversError(Exception):
    pass


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, InternalError, sqlite3.OperationalError])
def test_outages(error):
    assert is_outage(error("the server closed the connection"))


@pytest.mark.parametrize("error", [IntegrityError, sqlite3.IntegrityError, DriversError, ValueError])
def test_faults(error):
    assert not is_outage(error("not null"))
