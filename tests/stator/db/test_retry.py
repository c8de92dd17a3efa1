"""Which errors mean that the database is away: those of Django, and of a driver where Django lets them pass."""

import sqlite3

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, InterfaceError, InternalError, OperationalError, connection

from stator.db.retry import (
    is_lock_timeout,
    is_of_database,
    is_of_remote,
    is_of_schema,
    is_outage,
    is_refusal,
    is_retryable,
    suspends,
)
from stator.exceptions import TryAgainLater


class DriversError(Exception):
    pass


def test_lost_connection_is_an_outage_and_a_fault_of_a_statement_none():
    for error in (OperationalError, InterfaceError, InternalError, sqlite3.OperationalError):
        assert is_outage(error("the server closed the connection"))
    for error in (IntegrityError, sqlite3.IntegrityError, DriversError, ValueError):
        assert not is_outage(error("not null"))


UNSUPPORTED = "DO $$ BEGIN RAISE feature_not_supported USING MESSAGE = 'cannot run distributed query'; END $$"
OF_SCHEMA = [
    "SELECT absent FROM testapp_line", "INSERT INTO testapp_line (absent) VALUES (1)", "SELECT 1 FROM nowhere",
    pytest.param(UNSUPPORTED, marks=pytest.mark.postgresql),
]  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", OF_SCHEMA)
def test_what_a_table_lacks_is_neither_an_outage_nor_the_fault_of_a_row(statement):
    with pytest.raises(DatabaseError) as caught, connection.cursor() as cursor:
        cursor.execute(statement)
    assert is_of_schema(caught.value)
    assert not is_outage(caught.value)
    assert not is_refusal(caught.value)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_node_that_a_server_cannot_reach_makes_one_model_wait_and_a_server_that_is_away_all():
    with pytest.raises(OperationalError) as caught, connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE connection_failure USING MESSAGE = 'connection to the remote node' ; END $$")
    assert is_of_remote(caught.value)
    assert suspends(caught.value)
    assert not is_lock_timeout(caught.value)
    other = connection.copy()
    with pytest.raises(OperationalError) as caught, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    other.close()
    assert not suspends(caught.value)


def numbered(number):
    """An error as Django raises it for one of MySQL's driver, which has a number and no SQLSTATE."""
    error = OperationalError(number, "told")
    error.__cause__ = DriversError(number, "told")
    return error


OF_MYSQL = {
    (1213, 1020): {is_retryable, is_outage}, (1205, 3572): {is_retryable, is_lock_timeout, is_outage},
    (1292, 1364, 1644): {is_refusal},
    (1040, 2006, 2013): {is_outage}, (1054, 1146): {is_of_schema},
}  # fmt: skip


@pytest.mark.parametrize(
    ("number", "kinds"), [(number, kinds) for numbers, kinds in OF_MYSQL.items() for number in numbers]
)
def test_error_of_mysql_is_known_by_its_number(number, kinds):
    asked = {is_retryable, is_lock_timeout, is_refusal, is_outage, is_of_schema}
    assert {each for each in asked if each(numbered(number))} == kinds


@pytest.mark.parametrize("error", [ValidationError(["kept", "for ever"]), RuntimeError({}), KeyError([])])
def test_error_of_a_receiver_is_a_refusal_whatever_it_was_raised_with(error):
    assert is_refusal(error)
    assert not any(kind(error) for kind in (is_retryable, is_lock_timeout, is_outage, is_of_schema, suspends))


def test_value_that_exceeds_a_limit_of_the_database_is_no_outage_whatever_its_name():
    cause = DriversError("index row size 4016 exceeds btree version 4 maximum 2704")
    cause.sqlstate = "54000"
    error = OperationalError(str(cause))
    error.__cause__ = cause
    assert not is_outage(error)
    cause.sqlstate = "53100"
    assert is_outage(error)


def raised(error, *, cause=None, context=None):
    """An error as it would be raised ``from`` another, or while another is handled."""
    error.__cause__, error.__context__ = cause, context
    return error


LOST = OperationalError("the connection is closed")


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        InterfaceError("connection already closed"),
        raised(RuntimeError("wrapped"), cause=LOST),
        raised(TryAgainLater(reason="later"), context=LOST),
        ExceptionGroup("tasks", [ValueError("no"), ExceptionGroup("more", [LOST])]),
        raised(ValueError("no"), cause=ExceptionGroup("tasks", [raised(KeyError("a"), context=LOST)])),
    ],
)
def test_error_of_a_database_is_found_in_whatever_it_comes(error):
    assert is_of_database(error)
