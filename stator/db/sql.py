"""The SQL of the statements for PostgreSQL. Names come quoted, values are parameters.

Outside of a transaction each statement is one by itself. All but :func:`lock_claimed` skip rows that somebody else
has locked.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

# Sent ahead of a statement and in force for that statement only. Every statement here uses an index; for a small or
# churned table the planner would rather read all of it, including dead rows. A step that it cannot avoid although it is
# off counts as if it took ages, before version 18. A server with LLVM would then compile the whole statement each time.
PLANNER = "SET LOCAL jit = off; SET LOCAL enable_seqscan = off; "

# For EXISTS: a bitmap scan would read all matching rows first.
ANY = PLANNER + "SET LOCAL enable_bitmapscan = off; "

# For statements that have the keys of their rows: for some hundred keys the planner prefers a merge join that reads the
# whole index. An index lookup for each key takes half as long; with 20,000 keys of a million rows, two fifths.
BY_KEY = PLANNER + "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "

# For claims in the order of an index: a generic plan does not know how small the limit is.
BY_LINE = BY_KEY + "SET LOCAL enable_sort = off; "

# For some rows in the order of an index: with missing or old statistics the planner expects few rows, so it would read
# and sort all that match.
IN_ORDER = BY_KEY + "SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; "

# For few of very many rows, found by a GIN index: without statistics the planner would scan all rows in their order. In
# the transaction of a claim, it follows the one above.
BY_GIN = BY_KEY + "SET LOCAL enable_indexscan = off; SET LOCAL enable_sort = on; SET LOCAL enable_bitmapscan = on; "

# How many rows, in the order of an index, are searched for the wanted ones before another index searches all. The
# latter then has to sort the limit's part of a queue at most: 100 of each 5,000.
FIRST_ROWS = 5000


@lru_cache(maxsize=64)
def wait_for_locks(seconds: float | None) -> str:
    """Return the setting that limits how long a statement waits for each lock; "" leaves it to the session."""
    n = None if seconds is None else max(1, int(seconds * 1000))
    return f"SET LOCAL lock_timeout = {n}; " if n else ""


# ``stayed`` is the time from one ``state_changed`` to the next: 0 for an attempt after which the object stays.
COUNTED = """
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed, seconds, longest)
  SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s::int,
    count(*), count(*) FILTER (WHERE failed), greatest(date_part('epoch', sum(stayed)), 0),
    greatest(date_part('epoch', max(stayed)), 0)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed,
    seconds = stator_stats.seconds + excluded.seconds, longest = greatest(stator_stats.longest, excluded.longest))
"""

HISTORY = """
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, stay, attempts, error, fingerprint)
  SELECT %s, pk::text, statement_timestamp(), version, 'move', %s, %s, '', %s, worker, attempted, duration,
    greatest(date_part('epoch', stayed), 0), attempts, '', '' FROM done)
"""

# The same for an attempt that failed, after which the object stays.
ERROR_HISTORY = """
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    claimed, duration, attempts, error, fingerprint)
  SELECT %s, pk::text, statement_timestamp(), version, 'error', %s, '', '', '', worker, attempted, duration, attempts,
    %s, %s FROM done)
"""

REPORTED = """
reported AS (
  INSERT INTO stator_report AS report (model_label, object_pk, state, at, error, message, traceback, fingerprint,
    times, worker)
  SELECT %s, pk::text, %s, statement_timestamp(), %s, %s, %s, %s, 1, %s FROM done
  ON CONFLICT (model_label, object_pk) DO UPDATE
  SET state = excluded.state, at = excluded.at, error = excluded.error, message = excluded.message,
    traceback = excluded.traceback, fingerprint = excluded.fingerprint, worker = excluded.worker,
    times = CASE WHEN (report.state, report.error, report.message)
      = (excluded.state, excluded.error, excluded.message) THEN report.times + 1 ELSE 1 END)
"""


def lock_among(pick: str, picked: str) -> str:
    """Return LOCK for those of rows in order that are ``sought``. Parameters: those of both queries, then the limit.

    ``picked`` is the row at ``among.place``, locked, or nothing. It runs for each row in turn until there are enough,
    so the order needs no sort and the plan no statistics.
    """
    return f"""
SELECT one.pk FROM ({pick}) among CROSS JOIN LATERAL ({picked}) one WHERE among.sought LIMIT %s
"""  # noqa: S608 - as Django wrote them


def lock_claimed(table: str, pk: str, pk_type: str) -> str:
    """Return LOCK for rows whose claims stand, until commit. Parameters: two arrays (pk, claim), the state."""
    return f"""
SELECT t.{pk} FROM unnest(%s::{pk_type}[], %s::uuid[]) AS v(pk, claim) JOIN {table} t ON t.{pk} = v.pk
WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s ORDER BY v.pk FOR NO KEY UPDATE OF t
"""  # noqa: S608 - quoted names


class Attempts(NamedTuple):
    """A program's rows for the attempts that RECORD writes: table and columns of the INSERT, and their values.

    ``before`` and ``after``: columns of the recorded row, as it was and as it is now; their values come first.
    ``given``: the values of the other columns as SQL.
    """

    into: str = ""
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    given: Sequence[str] = ()

    @property
    def written(self) -> str:
        """The part of the WITH that inserts; "" without a table."""
        names = [f"before{n}" for n in range(len(self.before))] + [f"after{n}" for n in range(len(self.after))]
        table, values = self.into, ", ".join([*names, *self.given])
        return f"attempts AS (INSERT INTO {table} SELECT {values} FROM done)" if table else ""  # noqa: S608 - names

    @property
    def passed(self) -> str:
        """What the found rows pass on, as the end of a list of columns."""
        return "".join(f", t.{column} AS before{n}" for n, column in enumerate(self.before))

    def returned(self, table: str) -> str:
        """Return what ``done`` has of it, as the beginning of a list of columns."""
        old = "".join(f"v.before{n}, " for n in range(len(self.before)))
        return old + "".join(f"{table}.{column} AS after{n}, " for n, column in enumerate(self.after))


NO_ATTEMPTS = Attempts()


def record(
    table: str, pk: str, pk_type: str, assignments: str, saved: list[tuple[str, str]], *,
    placed: bool, count: bool, events: str, tell: bool, reported: bool = False, noted: str = "", only: str = "",
    attempts: Attempts = NO_ATTEMPTS,
) -> str:  # fmt: skip
    """Return RECORD. Parameters: five arrays (pk, claim, delay, failed, duration), the state left, those of the SET
    list, the state left; then those of the statistics, of the history, of the report and of ``attempts``. With
    ``placed`` there is a sixth array (place) after the five, and the state left comes twice before the SET list.

    ``events``: HISTORY or ERROR_HISTORY to write the history. ``reported``: also write the report of the one outcome.
    ``saved``: columns with their types; they add to the arrays one that says which outcomes have values, and one for
    each. Returns the primary keys; with ``tell``, each with the seconds in the state that was left, for a caller that
    writes the history. ``noted`` changes a program's records of claims by ``done``, which then has the tokens and the
    saved values; its parameters come last. Then the time is returned with each key. ``only``: a condition without which
    nothing is written; its parameters follow the SET list.

    Rows are found by their key or, if ``placed``, first where their claim has put them: the index of keys has an entry
    for each version of a row. For IS NOT DISTINCT FROM the planner uses no index, of leases or of keys, with all its
    dead entries. The locked rows are updated where they were found.
    """
    further = _further(COUNTED * count, events, REPORTED * reported, attempts.written, noted)
    in_time, which = (_IN_TIME, f"{_ALL_OR_NONE}{f' AND {only}' * bool(only)}") if noted else ("", "")
    arrays, names, assignments = _with_saved(table, assignments, saved, placed=placed)
    returning, history = _results(tell=tell, noted=bool(noted)), bool(events)
    columns = ", ".join(["pk", "claim", "delay", "failed", "duration", *names])
    kept = _passed(names, attempts, history=history)
    found = _found_at_places(table, pk, kept) if placed else _found_by_key(table, pk, "mine", kept, in_time)
    further_columns = _returned(table, names, attempts, history=history, noted=bool(noted))
    return f"""
WITH v AS (
  SELECT * FROM unnest(%s::{pk_type}[], %s::uuid[], %s::float8[], %s::bool[], %s::float8[]{arrays})
    AS v({columns})),
{found},
done AS (
  UPDATE {table} SET {assignments} FROM mine v
  WHERE {table}.ctid = v.found AND {table}.{pk} IS NOT DISTINCT FROM v.pk {which}
    AND {table}.state_claim IS NOT DISTINCT FROM v.claim AND {table}.state = %s
  RETURNING {table}.{pk} AS pk, v.failed, {further_columns}{table}.state_changed - v.entered AS stayed){further}
SELECT {returning} FROM done
"""  # noqa: S608 - quoted names


def _further(counted: str, events: str, reported: str, attempts: str, noted: str) -> str:
    """Return the further parts of the WITH that follow ``done``."""
    parts = [counted, events, reported, attempts, f"noted AS ({noted})" if noted else ""]
    return "".join(f",{part}" for part in parts if part)


def _results(*, tell: bool, noted: bool) -> str:
    if noted:
        return "pk, statement_timestamp()"
    return "pk, greatest(date_part('epoch', stayed), 0)" if tell else "pk"


def _passed(names: list[str], attempts: Attempts, *, history: bool) -> str:
    """Return the columns of the found rows that are passed on."""
    passed = ["pk", "claim", "delay", "failed", *(["duration"] if history else []), *names]
    return ", ".join([f"v.{name}" for name in passed] + (_OF_ATTEMPT if history else [])) + attempts.passed


def _returned(table: str, names: list[str], attempts: Attempts, *, history: bool, noted: bool) -> str:
    """Return what ``done`` has besides for the history and for records, as the beginning of a list of columns."""
    told = f"{table}.state_version AS version, {_WORKER}, v.duration, v.attempts, v.attempted, " if history else ""
    return told + "".join(f"v.{name}, " for name in ("claim", *names[1:]) if noted) + attempts.returned(table)


# Of claims with records: their leases last, and all of them are written, or none.
_IN_TIME = "AND t.state_locked_until > statement_timestamp()"
_ALL_OR_NONE = "AND (SELECT count(*) FROM mine) = (SELECT count(*) FROM v)"

# The worker that made the claim: its id is the beginning of the token.
_WORKER = "left(replace(v.claim::text, '-', ''), 12) AS worker"

# What the history has of the attempt, as the row has it until the outcome is written.
_OF_ATTEMPT = ["t.state_attempts AS attempts", "t.state_attempted AS attempted"]


def _found_at_places(table: str, pk: str, kept: str) -> str:
    """Return the rows that are ``mine``, found at their places or else by their key. Parameters: the state, twice."""
    left = "AND (SELECT count(*) FROM placed) < (SELECT count(*) FROM v) AND v.pk NOT IN (SELECT pk FROM placed)"
    held, others = _held(table, kept), _found_by_key(table, pk, "others", kept, left)
    return f"""
placed AS MATERIALIZED ({held} AND t.ctid = v.place AND t.{pk} IS NOT DISTINCT FROM v.pk
  FOR NO KEY UPDATE OF t SKIP LOCKED),
{others},
mine AS (SELECT * FROM placed UNION ALL SELECT * FROM others)"""  # noqa: S608 - quoted names


def _found_by_key(table: str, pk: str, name: str, kept: str, further: str = "") -> str:
    held = _held(table, kept)
    return f"""
{name} AS MATERIALIZED ({held} AND t.{pk} = v.pk {further} FOR NO KEY UPDATE OF t SKIP LOCKED)"""


def _with_saved(
    table: str, assignments: str, saved: list[tuple[str, str]], *, placed: bool
) -> tuple[str, list[str], str]:
    """Return the types of the arrays of places and for ``saved``, their names, and the SET list with their columns."""
    arrays = "".join(f", %s::{kind}[]" for kind in (["bool"] if saved else []) + [kind for _, kind in saved])
    names = ["saves"] * bool(saved) + [f"value{n}" for n in range(len(saved))]
    assignments += "".join(
        f", {column} = CASE WHEN v.saves THEN v.value{n} ELSE {table}.{column} END"
        for n, (column, _) in enumerate(saved)
    )
    return (f", %s::tid[]{arrays}", ["place", *names], assignments) if placed else (arrays, names, assignments)


def _held(table: str, kept: str) -> str:
    """Return rows ``t`` of standing claims ``v``; the caller adds how to find them. Parameters: the state.

    ``kept``: the further columns, of which each costs a little for each row.
    """
    return f"""
  SELECT {kept}, t.ctid AS found, t.state_changed AS entered
  FROM v CROSS JOIN {table} t WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s"""  # noqa: S608 - quoted names


def move(table: str, pk: str, pick: str, picked: str, assignments: str, *, history: bool, tell: bool) -> str:
    """Return MOVE for rows that a query picks and locks. Parameters: query, SET list, worker, statistics, history.

    ``picked`` is the column of the query with the primary key, ``stator_entered`` that with ``state_changed``.
    ``stator_place`` is the row's place, where it is updated as in CLAIM. Returns the primary keys with ``tell``, else
    one row with their number.
    """
    further, further_columns = (f",{HISTORY}", ", %s AS worker") if history else ("", "")
    return f"""
WITH picked AS MATERIALIZED ({pick}),
done AS (
  UPDATE {table} SET {assignments} FROM picked
  WHERE {table}.ctid = picked.stator_place AND {table}.{pk} IS NOT DISTINCT FROM picked.{picked}
  RETURNING {table}.{pk} AS pk, {table}.state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts, NULL::timestamptz AS attempted,
    {table}.state_changed - picked.stator_entered AS stayed{further_columns}),
{COUNTED}{further}
SELECT {"pk" if tell else "count(*)"} FROM done
"""  # noqa: S608 - quoted names
