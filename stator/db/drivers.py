"""Whether Django reaches a database by a driver that the statements here are written for."""

from typing import Any

REMEDY = "pip install 'psycopg[binary]>=3.2', which Django then uses instead"


def unsupported_driver(connection: Any) -> str:
    """Return the name of the driver where it is not supported, else an empty text; no connection is opened."""
    driver = getattr(connection, "Database", None)
    name = getattr(driver, "__name__", "")
    return name if connection.vendor == "postgresql" and name == "psycopg2" else ""
