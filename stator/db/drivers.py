"""The check that Django uses a database driver that these statements support."""

from django.db.backends.base.base import BaseDatabaseWrapper

REMEDY = "pip install 'psycopg[binary]>=3.2', which Django then uses instead"


def unsupported_driver(connection: BaseDatabaseWrapper) -> str:
    """Return the name of an unsupported driver, else ""; opens no connection."""
    driver = getattr(connection, "Database", None)
    name = getattr(driver, "__name__", "")
    return name if connection.vendor == "postgresql" and name == "psycopg2" else ""
