"""What a database must be for workers: a driver and an engine that are tested, and one that takes writes."""

import re
import sqlite3
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

from stator.capabilities import KNOWN, POSTGRESQL, capabilities_of
from stator.db.values import Row
from stator.statements import fetch_all


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that no test of ours runs on.

    ``sign``: a pattern of what it calls itself. ``lacks``: what a claim needs that it does not have; "" if nothing is
    known. ``only``: the vendor whose statements it does not have; "" if portable ones do not work there either.
    """

    name: str
    sign: str = ""
    lacks: str = ""
    remedy: str = ""
    only: str = ""


NO_CTID = "has no ctid, by which a claim finds the rows that it picked"

ENGINES = (
    Engine("YugabyteDB", "-YB-|Yugabyte", NO_CTID, "use PostgreSQL, or Citus for several machines"),
    Engine(
        "Aurora DSQL", "Aurora DSQL", "locks no rows, so several workers would claim the same objects",
        "use PostgreSQL, such as Aurora PostgreSQL",
    ),
    Engine(
        "CockroachDB", "CockroachDB", NO_CTID, "set ENGINE to django_cockroachdb, for which statements are portable",
        only=POSTGRESQL.name,
    ),
    Engine("TiDB", "TiDB"),
    Engine("Vitess", "Vitess"),
)  # fmt: skip


def untested_engine(connection: BaseDatabaseWrapper) -> Engine | None:
    """Return the engine of a database if no test of ours runs on it; at most one statement."""
    named, query = connection.display_name, capabilities_of(connection).engine_query
    if query:
        [(named,)] = fetch_all(connection, query)
    if engine := next((each for each in ENGINES if re.search(each.sign, named)), None):
        return Engine(engine.name) if engine.only and engine.only != connection.vendor else engine
    return None if connection.vendor in KNOWN else Engine(named)


def unusable_engine(connection: BaseDatabaseWrapper) -> Engine | None:
    """Return the engine of a database if it lacks what a claim needs."""
    engine = untested_engine(connection)
    return engine if engine and engine.lacks else None


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


def is_replica(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a database takes no writes because it follows another one."""
    return bool(_answer(connection, capabilities_of(connection).replica_query)[0])


def refusal_of_writes(connection: BaseDatabaseWrapper) -> str:
    """Return why a database takes no writes and, after a semicolon, what to do; "" if it takes them."""
    capabilities = capabilities_of(connection)
    replica, read_only = _answer(connection, capabilities.read_only_query)
    if replica:
        return f"is a read replica ({capabilities.replica_sign}); point it at the primary"
    if read_only:
        return f"is read-only ({capabilities.read_only_sign}); switch that off and start runstator again"
    if capabilities.is_file and _is_read_only_file(connection):
        return "is read-only; make its file and folder writable and start runstator again"
    return ""


def _answer(connection: BaseDatabaseWrapper, query: str) -> Row:
    """Return the row of a query; of zeros if the database has none."""
    return fetch_all(connection, query)[0] if query else (0, 0)


def _is_read_only_file(connection: BaseDatabaseWrapper) -> bool:
    """Try to write the version that the file has; a file that somebody else is writing to is writable."""
    connection.ensure_connection()
    driver = connection.connection
    if driver.in_transaction:
        return False
    [usual], [version] = (driver.execute(f"PRAGMA {name}").fetchone() for name in ("busy_timeout", "user_version"))
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        # A read-only file would begin the transaction, as one that reads.
        driver.execute("BEGIN IMMEDIATE")
        driver.execute(f"PRAGMA user_version = {version}")
    except sqlite3.OperationalError as error:
        return "readonly" in str(error)
    finally:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        driver.execute(f"PRAGMA busy_timeout = {usual}")
    return False
