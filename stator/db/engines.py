"""The check that workers are tested with a database's engine, and not only with its protocol."""

import re
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

from stator.capabilities import KNOWN, POSTGRESQL, capabilities_of


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
        with connection.cursor() as cursor:
            cursor.execute(query)
            named = str(cursor.fetchone()[0])
    if found := next((each for each in ENGINES if re.search(each.sign, named)), None):
        return Engine(found.name) if found.only and found.only != connection.vendor else found
    return None if connection.vendor in KNOWN else Engine(named)


def unusable_engine(connection: BaseDatabaseWrapper) -> Engine | None:
    """Return the engine of a database if it lacks what a claim needs."""
    found = untested_engine(connection)
    return found if found and found.lacks else None
