"""Files of SQLite databases that are deleted or replaced under open connections."""

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from stator.db.files import missing_file, watched_files
from stator.db.retry import is_outage

# No test uses the database of the suite, but without the mark no connection may be opened at all.
pytestmark = pytest.mark.django_db


def connection_to(name):
    return ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": name}})["default"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "db.sqlite3"
    path.touch()
    return path


@pytest.fixture
def connection(path):
    connection = connection_to(path)
    with watched_files():
        connection.ensure_connection()
        yield connection
    connection.close()


def send(connection, statement="SELECT count(*) FROM sqlite_master"):
    with connection.cursor() as cursor:
        return cursor.execute(statement).fetchone()


def test_statement_fails_while_the_file_is_away(connection, path):
    away = path.rename(path.with_suffix(".away"))
    with pytest.raises(OperationalError, match=r"db.sqlite3 was deleted or moved; put it back") as caught:
        send(connection)
    assert is_outage(caught.value)
    assert connection.connection is not None
    assert not path.exists()
    away.rename(path)
    assert send(connection) == (0,)


def test_file_that_took_its_place_is_opened_once_the_connection_is_cleaned_up(connection, path):
    send(connection, "CREATE TABLE old (id)")
    path.rename(path.with_suffix(".away"))
    path.touch()
    # The cursor can still be closed: Django's compiler does so, and an error of that would hide the one of an outage.
    with connection.cursor() as cursor, pytest.raises(OperationalError, match=r"was replaced by another"):
        cursor.execute("SELECT 1")
    connection.close_if_unusable_or_obsolete()
    assert send(connection) == (0,)


def test_file_that_is_missing_is_told(tmp_path, path):
    assert missing_file(connection_to(path)) == ""
    assert missing_file(connection_to(tmp_path / "none")) == str(tmp_path / "none")
    # Such a name says itself how the file is to be opened.
    assert missing_file(connection_to(f"file:{tmp_path}/none?mode=rw")) == ""
