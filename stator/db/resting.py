"""One look into many schemas of PostgreSQL: which were written to, and how long others can be left alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from django.db import DatabaseError, connections
from django.db.models import Model

from stator.db import sql
from stator.db.chores import rows_to_watch
from stator.db.interface import Operations
from stator.db.locks import PROBE
from stator.db.probe import Alike, coming
from stator.db.retry import is_lock_timeout, is_of_schema
from stator.db.rows import Place
from stator.db.session import send, send_in_each
from stator.db.values import Row
from stator.graph.durations import seconds_of
from stator.statements import Statement, existing, first, joined

# The server counts the rows that were written to each table. Reading the counters of 3,000 tables takes it 1 ms; a look
# into the tables themselves 100 ms, and the session some 100 MB for what it learns of them.
WRITTEN = """
SELECT counted.oid::bigint, counted.writes FROM (
  SELECT oid, known, pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
    + pg_stat_get_tuples_deleted(oid) AS writes
  FROM unnest(%s::oid[], %s::bigint[]) AS watched(oid, known)) counted
WHERE writes <> known
"""

FILLED = "SELECT oid::bigint FROM unnest(%s::oid[]) AS oid WHERE pg_relation_size(oid) > 0"

# Schemas in one statement; its transaction locks their tables and indexes, and the server has room for some thousand.
AT_ONCE = 20

# Seconds after which a schema is looked into although nobody seems to have written to it: a condition of its graphs may
# depend on other tables. Also the time for which a look tells what comes due.
MAX_REST = 300.0


def written_since(alias: str, known: Mapping[int, int]) -> dict[int, int]:
    """Return the counters of the tables that differ from the known ones, by the id of the table.

    The server counts a write up to a second after its commit, and up to ten if the session then has nothing to do.
    """
    return dict(send(connections[alias], WRITTEN, [_array(known), _array(known.values())])) if known else {}


def _array(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def by_filled(
    alias: str, places: Mapping[Place, Mapping[type[Model], int]]
) -> dict[tuple[type[Model], ...], list[Place]]:
    """Return places by the models that may have rows there: a look into an empty table would find nothing.

    ``places``: the ids of the tables of each model; 0 if its rows are elsewhere.
    """
    numbers = _array(number for tables in places.values() for number in tables.values())
    filled = {0, *(number for (number,) in send(connections[alias], FILLED, [numbers]))}
    groups: dict[tuple[type[Model], ...], list[Place]] = defaultdict(list)
    for place, tables in places.items():
        groups[tuple(model for model, number in tables.items() if number in filled)].append(place)
    return groups


def rests(group: Sequence[Operations], schemas: Sequence[str]) -> dict[str, float]:
    """Return for how many seconds the models of a group have nothing to do in each schema; 0 if they have now.

    ``MAX_REST`` at most. Schemas where a table or a column is missing, or a table is locked, are left out.
    """
    return {
        schema: 0.0 if is_wanted else seconds_of(left) if left is not None else MAX_REST
        for schema, (is_wanted, left) in read_in_each(group[0].alias, schemas, _statement(Alike.of(group))).items()
    }


def read_in_each(alias: str, schemas: Sequence[str], statement: Statement) -> dict[str, Row]:
    """Return the row that a statement finds in each schema.

    Schemas where a table or a column is missing, or a table is locked, are left out.
    """
    found: dict[str, Row] = {}
    for start in range(0, len(schemas), AT_ONCE):
        found |= _read(alias, schemas[start : start + AT_ONCE], statement)
    return found


def end_session(alias: str) -> None:
    """Close the calling thread's connection; the next statement opens another one.

    The server keeps what a session has learned of tables in its memory, some 300 kB for each schema.
    """
    connections[alias].close()


def write_in_each(alias: str, schemas: Sequence[str], statement: Statement) -> None:
    """Send a statement that returns no rows in each schema; nobody waits until it is on the disk."""
    planner = sql.wait_for_locks(PROBE) + "SET LOCAL synchronous_commit = off; "
    for start in range(0, len(schemas), AT_ONCE):
        send_in_each(connections[alias], schemas[start : start + AT_ONCE], statement, planner)


def _read(alias: str, schemas: Sequence[str], statement: Statement) -> dict[str, Row]:
    try:
        answers = send_in_each(connections[alias], schemas, statement, sql.wait_for_locks(PROBE) + sql.ANY)
    except DatabaseError as error:
        if not (is_of_schema(error) or is_lock_timeout(error)):
            raise
        half = len(schemas) // 2
        return _read(alias, schemas[:half], statement) | _read(alias, schemas[half:], statement) if half else {}
    return {schema: row for schema, [row] in zip(schemas, answers, strict=True)}


@lru_cache(maxsize=16)
def _statement(alike: Alike) -> Statement:
    """Return a statement for whether there is something to do, and else how long until a row comes due."""
    wanted, times = list[Statement](), [Statement("NULL::interval")]
    for operations in alike.operations:
        wanted += map(existing, rows_to_watch(operations, MAX_REST))
        times += [first(rows) for rows in coming(operations, MAX_REST)]
    return Statement.of("SELECT ", joined(wanted, " OR "), ", LEAST(", joined(times, ", "), ")")
