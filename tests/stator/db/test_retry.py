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


def test_value_that_exceeds_a_limit_of_the_database_is_no_outage_whatever_its_name():
    cause = DriversError("index row size 4016 exceeds btree version 4 maximum 2704")
    cause.sqlstate = "54000"
    error = OperationalError(str(cause))
    error.__cause__ = cause
    assert not is_outage(error)
    cause.sqlstate = "53100"
    assert is_outage(error)
