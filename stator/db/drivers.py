"""The check that Django uses a database driver that these statements support."""

import re

from django.db.backends.base.base import BaseDatabaseWrapper

REMEDY = "pip install 'psycopg[binary]>=3.2', which Django then uses instead"

# The listener needs the timeout of ``Connection.notifies()``, which 3.1 does not have.
OLDEST = (3, 2)


def unsupported_driver(connection: BaseDatabaseWrapper) -> str:
    """Return the name and version of an unsupported driver, else ""; opens no connection."""
    if connection.vendor != "postgresql":
        return ""
    driver = getattr(connection, "Database", None)
    name, version = getattr(driver, "__name__", ""), getattr(driver, "__version__", "")
    if name == "psycopg2":
        return name
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return f"{name} {version}" if name == "psycopg" and numbers < OLDEST else ""
