"""Files of SQLite databases: a process must not go on writing to one that was deleted or replaced."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.signals import connection_created

Identity = tuple[int, int]


def missing_file(connection: Any) -> str:
    """Return the path of a SQLite database whose file does not exist, else an empty text; opens nothing.

    SQLite would make an empty file in its place.
    """
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or connection.is_in_memory_db() or name.startswith("file:"):
        return ""
    return "" if Path(name).exists() else name


@contextmanager
def watched_files() -> Iterator[None]:
    """In the meantime, let statements fail on each new connection to SQLite once its file is gone or replaced.

    Otherwise they would succeed in the deleted file, unseen by other processes. A connection whose file is gone stays
    open, for the file may come back; one whose file was replaced is closed, and the next use opens the new file.
    """
    # Of its own, so that the end of one worker leaves the others of the process alone.
    uid = object()
    connection_created.connect(_watch, dispatch_uid=uid)
    try:
        yield
    finally:
        connection_created.disconnect(dispatch_uid=uid)


def _watch(sender: Any, connection: Any, **kwargs: Any) -> None:
    if connection.vendor != "sqlite":
        return
    [path] = [path for _, name, path in connection.connection.execute("PRAGMA database_list") if name == "main"]
    # A database in memory has none.
    if path:
        connection._stator_file = path, _identity(path)
        if _fail_without_file not in connection.execute_wrappers:
            connection.execute_wrappers.append(_fail_without_file)


def _identity(path: str) -> Identity | None:
    """Return the device and inode of a file, None where it cannot be found.

    The inode of a deleted file is not used again while somebody has it open.
    """
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _fail_without_file(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    connection = context["connection"]
    path, opened = connection._stator_file
    found = _identity(path)
    if found is None:
        raise OperationalError(f"database file {path} was deleted or moved; put it back")
    if found != opened:
        connection.close()
        raise OperationalError(f"database file {path} was replaced by another; it is opened anew")
    return execute(sql, params, many, context)
