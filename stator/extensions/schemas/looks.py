"""One look into many schemas of PostgreSQL: which were written to, and how long others can be left alone."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from stator.db import sql
from stator.db.chores import rows_to_watch
from stator.db.interface import Operations
from stator.db.locks import PROBE
from stator.db.probe import Alike, coming
from stator.db.retry import is_of_remote, is_of_schema, suspends
from stator.db.session import send, send_many
from stator.db.values import Row
from stator.extensions.schemas.paths import path_of
from stator.graph.durations import seconds_of
from stator.scopes import Scope
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
# depend on other tables. A look also tells what is due within this time.
MAX_REST = 300.0


def written_since(alias: str, known: Mapping[int, int]) -> dict[int, int]:
    """Return the counters of the tables that differ from the known ones, by the id of the table.

    The server counts a write up to a second after its commit, and up to ten if the session then has nothing to do.
    """
    return dict(send(connections[alias], WRITTEN, [_array(known), _array(known.values())])) if known else {}


def _array(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def by_filled(
    alias: str, scopes: Mapping[Scope, Mapping[type[Model], int]]
) -> dict[tuple[type[Model], ...], list[Scope]]:
    """Return scopes by the models that may have rows there: a look into an empty table would find nothing.

    ``scopes``: the ids of the tables of each model; 0 if its rows are elsewhere.
    """
    numbers = _array(number for tables in scopes.values() for number in tables.values())
    filled = {0, *(number for (number,) in send(connections[alias], FILLED, [numbers]))}
    groups: dict[tuple[type[Model], ...], list[Scope]] = defaultdict(list)
    for scope, tables in scopes.items():
        groups[tuple(model for model, number in tables.items() if number in filled)].append(scope)
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

    Schemas where a table or a column is missing, a table is locked, or whose node is away, are left out.
    """
    answers: dict[str, Row] = {}
    planner = sql.wait_for_locks(PROBE) + sql.ANY
    for start in range(0, len(schemas), AT_ONCE):
        rows = _send(alias, schemas[start : start + AT_ONCE], statement, planner, _is_left_out)
        answers |= {schema: row for schema, [row] in rows.items()}
    return answers


def end_session(alias: str) -> None:
    """Close the calling thread's connection; the next statement opens another one.

    The server keeps what a session has learned of tables in its memory, some 300 kB for each schema.
    """
    connections[alias].close()


def write_in_each(alias: str, schemas: Sequence[str], statement: Statement) -> None:
    """Send a statement that returns no rows in each schema; nobody waits until it is on the disk.

    Schemas whose node is away are left out.
    """
    planner = sql.wait_for_locks(PROBE) + "SET LOCAL synchronous_commit = off; "
    for start in range(0, len(schemas), AT_ONCE):
        _send(alias, schemas[start : start + AT_ONCE], statement, planner, is_of_remote)


def _is_left_out(error: BaseException) -> bool:
    return is_of_schema(error) or suspends(error)


def _send(
    alias: str, schemas: Sequence[str], statement: Statement, planner: str, is_left_out: Callable[[BaseException], bool]
) -> dict[str, list[Row]]:
    """Return the rows of a statement in each schema, in halves after such an error, without those that have it."""
    try:
        answers = send_in_each(connections[alias], schemas, statement, planner)
    except DatabaseError as error:
        if not is_left_out(error):
            raise
        half = len(schemas) // 2
        parts = (schemas[:half], schemas[half:]) if half else ()
        each = (_send(alias, part, statement, planner, is_left_out) for part in parts)
        return {schema: rows for answer in each for schema, rows in answer.items()}
    return dict(zip(schemas, answers, strict=False))


def send_in_each(
    connection: BaseDatabaseWrapper, schemas: Sequence[str], statement: Statement, planner: str = ""
) -> list[list[Row]]:
    """Send a statement in each of several schemas, all in one round trip and one transaction; return the rows of each.

    ``planner``: settings for all of them.
    """
    connection.ensure_connection()
    text = f"{ON_PATH}; {statement.text}"
    params: list[object] = []
    for schema in schemas:
        params += [path_of(connection, schema), *statement.params]
    sets: list[list[Row]] = []
    send_many(connection, planner + "; ".join([text] * len(schemas)), params, sets)
    # The rows of its path precede the rows of each statement; a statement without rows has no set of them.
    return sets[1::2]


# Ends with the transaction.
ON_PATH = "SELECT set_config('search_path', %s, true)"


@lru_cache(maxsize=16)
def _statement(alike: Alike) -> Statement:
    """Return a statement for whether there is something to do, and else how long until a row comes due."""
    wanted, times = list[Statement](), [Statement("NULL::interval")]
    for operations in alike.operations:
        wanted += map(existing, rows_to_watch(operations, MAX_REST))
        times += [first(rows) for rows in coming(operations, MAX_REST)]
    return Statement.of("SELECT ", joined(wanted, " OR "), ", LEAST(", joined(times, ", "), ")")
