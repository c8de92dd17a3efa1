"""Where pages and metrics read: from the replica that ``READ_ALIAS`` names, or from the database that is written.

Only what is shown and decides nothing is read here.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction

from stator.capabilities import capabilities_of
from stator.conf import read_settings
from stator.db.retry import is_outage
from stator.graph.durations import span
from stator.rows.workers import WORKER_BEAT
from stator.texts import one_line

logger = logging.getLogger("stator.replica")

# Seconds of lag after which the primary is read instead: on a replica further behind, live workers would soon count as
# dead.
MAX_LAG = WORKER_BEAT

# Returns, by the alias of a database, the alias of that or of its replica, which is read instead.
Read = Callable[[str], str]

# Seconds until a replica is asked again for its lag, and after it did not answer: an attempt to connect may take long.
FRESH, AWAY = 1.0, 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """The alias of the database to read. ``note``: what a page says about it; "" without a replica.

    ``lag``: by how many seconds the replica is behind; None if that is not known. ``fails``: the replica is not read
    because it is too far behind or does not answer.
    """

    alias: str
    note: str = ""
    lag: float | None = None
    fails: bool = False


def replica_of(home: str) -> str:
    """Return the alias of the replica of a database, or the database's own if it has none."""
    settings, problems = read_settings()
    # A check reports the problems.
    return home if problems else settings.replicas.get(home, home)


def source_of(home: str) -> Source:
    """Return where to read the rows that are written to a database; its replica is asked at most once in ``FRESH``."""
    replica = replica_of(home)
    if replica == home:
        return Source(home)
    until, source = _latest.get((home, replica), (0.0, Source(home)))
    if time.monotonic() >= until:
        source = _judged(home, replica)
        _latest[home, replica] = time.monotonic() + (AWAY if source.fails else FRESH), source
    return source


def alias_of(home: str) -> str:
    """Return the alias of :func:`source_of`."""
    return source_of(home).alias


def _judged(home: str, replica: str) -> Source:
    position = _asked(home, capabilities_of(connections[home]).position_query)
    try:
        lag = _asked(replica, capabilities_of(connections[replica]).lag_query, [position])
    except (DatabaseError, InterfaceError) as error:
        logger.warning("stator.replica_away", extra={"replica": replica, "why": one_line(error)})
        why = f"the replica {replica!r} does not answer; stator.replica_away in the log says why"
        return Source(home, f"Read from the primary database: {why}.", fails=True)
    if lag is None:
        return Source(replica, f"Read from the replica {replica!r}; how far it is behind is not known.")
    if lag > MAX_LAG:
        why = f"the replica {replica!r} is {span(lag)} behind"
        return Source(home, f"Read from the primary database: {why}.", float(lag), fails=True)
    behind = f"{lag:.1f} s behind" if lag else "which is up to date"
    return Source(replica, f"Read from the replica {replica!r}, {behind}.", float(lag))


def _asked(alias: str, query: str, parameters: Sequence[str | None] = ()) -> Any:
    """Return the answer to a query; None from a server that does not support it."""
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(query, parameters)
            return cursor.fetchone()[0]
    except DatabaseError as error:
        if is_outage(error):
            raise
        return None


# The latest answers by database and replica, each with the time of ``time.monotonic()`` until which it holds.
_latest: dict[tuple[str, str], tuple[float, Source]] = {}
