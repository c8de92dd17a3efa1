"""The text of the statements for PostgreSQL. Names come quoted, values are parameters.

Every statement is one transaction by itself and passes over rows that somebody else has locked.
"""

# Sent ahead of a statement and in force for that statement only. Every statement here reaches its rows through an
# index; in a small or churned table the planner would rather read all of it, dead rows included.
PLANNER = "SET LOCAL enable_seqscan = off; "

# As well where a statement has the keys of its rows: for some hundred of them the planner would rather read the whole
# of an index and merge than look them up, which takes half as long.
BY_KEY = PLANNER + "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "

COUNTED = """
counted AS (
  INSERT INTO stator_stats (model_label, hour, source, "to", shard, handled, failed)
  SELECT %s, date_trunc('hour', statement_timestamp(), 'UTC'), %s, %s, %s, count(*), count(*) FILTER (WHERE failed)
  FROM done HAVING count(*) > 0
  ON CONFLICT (model_label, hour, source, "to", shard) DO UPDATE
  SET handled = stator_stats.handled + excluded.handled, failed = stator_stats.failed + excluded.failed)
"""

KEPT = """
kept AS (
  INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker,
    duration, attempts, error, fingerprint)
  SELECT %s, pk::text, statement_timestamp(), version, 'move', %s, %s, '', %s, %s, duration, attempts, '', '' FROM done)
"""


def claim(table: str, pk: str, assignments: str, returning: str, *, alone: bool) -> str:
    """CLAIM. Parameters: names of states, most crashes, limit, then those of the SET list.

    The pick is materialised: a plan that runs it again would lock more rows than asked for. NO KEY UPDATE, so that a
    row is not passed over while somebody inserts a child row that refers to it. Index ``st_ready``.
    """
    crashed = "state_crashes > 0 AND state_crashes < %s" if alone else "state_crashes = 0 AND 0 < %s"
    return f"""
WITH picked AS MATERIALIZED (
  SELECT {pk} AS pk FROM {table}
  WHERE state_ready AND state_claim IS NULL AND state = ANY(%s) AND {crashed}
  ORDER BY COALESCE(state_next_attempt, state_changed), {pk} LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {table} SET {assignments} FROM picked WHERE {table}.{pk} = picked.pk RETURNING {returning}
"""  # noqa: S608 - quoted names


def record(table: str, pk: str, pk_type: str, assignments: str, *, count: bool, history: bool) -> str:
    """RECORD. Parameters: five arrays (pk, claim, delay, failed, duration), the state left, those of the SET list, the
    state left; then of the statistics, of the history.

    The claims are compared by IS NOT DISTINCT FROM: an equality would let the planner walk the index of leases, with
    all its dead entries, instead of the primary key.
    """
    further = "".join(f",{part}" for part, wanted in ((COUNTED, count), (KEPT, history)) if wanted)
    return f"""
WITH v AS (
  SELECT * FROM unnest(%s::{pk_type}[], %s::uuid[], %s::float8[], %s::bool[], %s::float8[])
    AS v(pk, claim, delay, failed, duration)),
mine AS MATERIALIZED (
  SELECT v.*, t.state_attempts AS attempts FROM {table} t JOIN v ON t.{pk} = v.pk
  WHERE t.state_claim IS NOT DISTINCT FROM v.claim AND t.state = %s FOR NO KEY UPDATE OF t SKIP LOCKED),
done AS (
  UPDATE {table} SET {assignments} FROM mine v
  WHERE {table}.{pk} = v.pk AND {table}.state_claim IS NOT DISTINCT FROM v.claim AND {table}.state = %s
  RETURNING {table}.{pk} AS pk, {table}.state_version AS version, v.failed, v.duration, v.attempts){further}
SELECT pk FROM done
"""  # noqa: S608 - quoted names


def move(table: str, pk: str, pick: str, picked: str, assignments: str, *, history: bool, tell: bool) -> str:
    """MOVE rows that a query picks and locks. Parameters: those of the query, the SET list, statistics and history.

    ``picked`` is the column of the query that holds the primary key. Gives the primary keys with ``tell``, else one
    row with their number.
    """
    further = f",{KEPT}" if history else ""
    return f"""
WITH picked AS MATERIALIZED ({pick}),
done AS (
  UPDATE {table} SET {assignments} FROM picked WHERE {table}.{pk} = picked.{picked}
  RETURNING {table}.{pk} AS pk, {table}.state_version AS version, false AS failed, NULL::float8 AS duration,
    0 AS attempts),
{COUNTED}{further}
SELECT {"pk" if tell else "count(*)"} FROM done
"""  # noqa: S608 - quoted names
