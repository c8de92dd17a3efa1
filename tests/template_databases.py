"""Databases of the tests as copies of one that the first process of a run migrates.

To migrate takes longer than any test, and each process of a run has two databases.
"""

import fcntl
import shutil
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.backends.base.creation import BaseDatabaseCreation

from stator.capabilities import capabilities_of
from tests.projects import execute_on_server
from tests.settings import TEST_DIRECTORY

_create: Callable[..., str] = BaseDatabaseCreation.create_test_db
# Its name is in this file once it is there.
MADE = TEST_DIRECTORY / "template"


def install() -> None:
    """Have the tests use this."""
    BaseDatabaseCreation.create_test_db = create_test_db  # type: ignore[method-assign]


def remove() -> None:
    """Drop what the processes of this run have copied; what is a file goes with its folder."""
    if MADE.exists() and connection.vendor == "postgresql":
        execute_on_server(f"DROP DATABASE IF EXISTS {connection.ops.quote_name(MADE.read_text())}")


def create_test_db(creation: Any, **options: Any) -> str:
    """Return the name of a new database with all tables, to which the connection of ``creation`` now leads.

    ``options`` are those of Django's own function, of which Django 6.1 has fewer.
    """
    is_copied = capabilities_of(creation.connection).name in ("sqlite", "postgresql")
    if not is_copied or options.get("keepdb") or options.get("serialize"):
        return _create(creation, **options)
    template, name = _template(creation, options), creation._get_test_db_name()
    if creation.connection.vendor == "sqlite":
        shutil.copyfile(template, name)
    else:
        quote = creation.connection.ops.quote_name
        with creation._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {quote(name)}")
            cursor.execute(f"CREATE DATABASE {quote(name)} TEMPLATE {quote(template)}")
    _lead(creation, name)
    creation.connection.ensure_connection()
    return name


def _template(creation: Any, options: dict[str, Any]) -> str:
    with MADE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not MADE.exists():
            MADE.write_text(_made(creation, options))
    return MADE.read_text()


def _made(creation: Any, options: dict[str, Any]) -> str:
    """Return the name of a migrated database to which nobody is connected."""
    given = creation.connection.settings_dict
    name, wanted = given["NAME"], given["TEST"]["NAME"]
    is_file = creation.connection.vendor == "sqlite"
    given["TEST"]["NAME"] = str(TEST_DIRECTORY / "template.sqlite3") if is_file else f"{TEST_DIRECTORY.name}_template"
    made = _create(creation, **{**options, "verbosity": 0, "autoclobber": True})
    creation.connection.close()
    given["TEST"]["NAME"] = wanted
    _lead(creation, name)
    return made


def _lead(creation: Any, name: str) -> None:
    """Have the connection lead to another database, in the settings too."""
    creation.connection.close()
    creation.connection.settings_dict["NAME"] = settings.DATABASES[creation.connection.alias]["NAME"] = name
