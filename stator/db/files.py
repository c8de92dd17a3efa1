"""Files of SQLite databases: a process must not continue to write to a deleted or replaced file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.signals import connection_created

Identity = tuple[int, int]


def missing_file(connection: Any) -> str:
    """Return the path of a SQLite database if its file does not exist, else ""; opens nothing.

    Opening it would create an empty file.
    """
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or connection.is_in_memory_db() or name.startswith("file:"):
        return ""
    return "" if Path(name).exists() else name


@contextmanager
def watched_files() -> Iterator[None]:
    """Make statements on new SQLite connections fail, within this context, if the file is gone or replaced.

    Otherwise the statements would succeed in the deleted file, unseen by other processes. If the file is gone, the
    connection stays open, because the file may come back. If it was replaced, the connection is closed by the clean-up
    after the statement (``close_if_unusable_or_obsolete()``), and the next use opens the new file.
    """
    # Unique, so that the end of one worker does not affect other workers in the process.
    uid = object()
    connection_created.connect(_watch, dispatch_uid=uid)
    try:
        yield
    finally:
        connection_created.disconnect(dispatch_uid=uid)


def _watch(sender: object, connection: Any, **kwargs: object) -> None:
    if connection.vendor != "sqlite":
        return
    [path] = [path for _, name, path in connection.connection.execute("PRAGMA database_list") if name == "main"]
    # Empty for a database in memory.
    if path:
        connection._stator_file = path, _identity(path)
        if _fail_without_file not in connection.execute_wrappers:
            connection.execute_wrappers.append(_fail_without_file)


def _identity(path: str) -> Identity | None:
    """Return the device and inode of a file, None if it cannot be found.

    The inode of a deleted file is not reused while somebody has it open.
    """
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _fail_without_file(
    execute: Callable[..., object], sql: object, params: object, many: bool, context: dict[str, Any]
) -> object:
    connection = context["connection"]
    path, opened = connection._stator_file
    current = _identity(path)
    if current is None:
        raise OperationalError(f"database file {path} was deleted or moved; put it back")
    if current != opened:
        # The clean-up after the statement closes it; the cursor still needs the connection.
        connection.errors_occurred, connection.close_at = True, 0.0
        raise OperationalError(f"database file {path} was replaced by another; it is opened anew")
    return execute(sql, params, many, context)
