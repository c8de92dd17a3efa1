"""The protocol in SQL: each statement as ``stator.db`` sends it, on a table with nothing else."""

import sqlite3
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from tests.faults.events import Row
from tests.simulation import statements as ask
from tests.simulation.statements import INTERVAL, LEASE, MAX_CRASHES, Held, Outcome
from tests.simulation.workers import deadline

START = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = """
    CREATE TABLE job (
        pk INTEGER PRIMARY KEY, key TEXT, priority INTEGER NOT NULL DEFAULT 0, changed REAL NOT NULL,
        state TEXT NOT NULL DEFAULT 'fresh', version INTEGER NOT NULL DEFAULT 0, ready INTEGER NOT NULL DEFAULT 1,
        claim TEXT, locked_until REAL, next_attempt REAL, attempts INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0, crashes INTEGER NOT NULL DEFAULT 0);
"""
ONE_HOLDER = "CREATE UNIQUE INDEX one_holder ON job (key) WHERE claim IS NOT NULL AND key IS NOT NULL"
COLUMNS = "pk, state, version, ready, claim, locked_until, next_attempt, attempts, failures, crashes, key, priority"
ORDER = "priority, coalesce(next_attempt, changed), pk"
FREE = "claim = NULL, locked_until = NULL"
RESET = "next_attempt = NULL, attempts = 0, failures = 0, crashes = 0"
ENTERED = f"version = version + 1, changed = :now, {RESET}, ready = :ready, {FREE}"


class Store:
    """A database with some rows and a clock of its own. A broken protocol overrides one statement."""

    # A row with so many crashes is claimed alone; with MAX_CRASHES it is not claimed any more.
    alone_from = 2
    # A lease that ends later was made before the clock was set back.
    longest = LEASE + 5.0
    # States whose handlers write their effects with the outcome, in its transaction.
    atomic = frozenset({"halfway"})

    schema = TABLE + ONE_HOLDER
    picked = f"""
        SELECT pk FROM (
            SELECT *, row_number() OVER (PARTITION BY coalesce(key, pk) ORDER BY {ORDER}) AS turn
            FROM job AS mine
            WHERE ready AND claim IS NULL AND state IN ('fresh', 'halfway') AND crashes < :max_crashes
                AND CASE WHEN crashes = 0 THEN 'none' WHEN crashes < :alone_from THEN 'few' ELSE 'many' END = :crashes
                AND NOT EXISTS (SELECT 1 FROM job WHERE job.key = mine.key AND job.claim IS NOT NULL)
        ) WHERE turn = 1 ORDER BY {ORDER} LIMIT :limit"""
    # A row that is ready before it is due only loses the mark.
    early = "(next_attempt IS NOT NULL AND next_attempt > :now)"
    counted = f"attempts = attempts + NOT {early}"
    claimed = f"""
        claim = CASE WHEN {early} THEN NULL ELSE :token END,
        locked_until = CASE WHEN {early} THEN NULL ELSE :now + :lease END, ready = 0, {counted}"""
    fence = "pk = :pk AND claim = :token AND state = :state"
    renewable = "pk = :pk AND claim = :token"
    expired = "claim IS NOT NULL AND (locked_until <= :now OR locked_until > :now + :longest)"
    reaped = (
        f"crashes = crashes + 1, ready = crashes + 1 < :max_crashes AND state <> 'done', next_attempt = NULL, {FREE}"
    )
    # By hand, a row is due at its place in line: workers set no time, so whoever has made it due since is known.
    moved_by_hand = "state = :state, " + ENTERED.replace(
        "next_attempt = NULL", "next_attempt = CASE WHEN :ready THEN :now END"
    )
    saved = "priority = priority"

    def __init__(self, rows: list[tuple[str | None, int]]) -> None:
        self.now = 0.0
        self.effects: list[Held] = []
        self._db = database(self.schema)
        self._db.execute("DELETE FROM job")
        self._db.executemany("INSERT INTO job (pk, key, priority, changed) VALUES (?, ?, ?, 0)", _numbered(rows))
        self._rows: dict[int, Row] = {}
        self._read_after = 0

    def rows(self) -> dict[int, Row]:
        """Every row as it is now."""
        if self._read_after != self._db.total_changes:
            self._read_after = self._db.total_changes
            self._rows = {row[0]: _row(row) for row in self._db.execute(f"SELECT {COLUMNS} FROM job")}
        return self._rows

    def answer(self, request: Any, actor: str, monotonic: float) -> Any:
        """Execute a statement and return its reply."""
        return getattr(self, f"do_{type(request).__name__.lower()}")(request, actor, monotonic)

    # What workers ask

    def do_claim(self, request: ask.Claim, actor: str, monotonic: float) -> list[Held]:
        found = self.write(
            f"UPDATE job SET {self.claimed} WHERE pk IN ({self.picked}) RETURNING pk, state, version, attempts, claim",
            token=request.token.hex, crashes=request.crashes.value, limit=request.limit,
        )  # fmt: skip
        return [Held(pk, request.token, *rest, deadline(monotonic)) for pk, *rest, claim in sorted(found) if claim]  # type: ignore[call-arg]

    def do_start(self, request: ask.Start, actor: str, monotonic: float) -> None:
        if request.held.state not in self.atomic:
            self.effects.append(request.held)

    def do_renew(self, request: ask.Renew, actor: str, monotonic: float) -> bool:
        return bool(self._of(request.held, f"locked_until = :now + :lease WHERE {self.renewable}"))

    def do_record(self, request: ask.Record, actor: str, monotonic: float) -> bool:
        held, outcome = request.held, request.outcome
        written = self._of(held, f"{self._changes(outcome)} WHERE {self.fence}", to=outcome.to, ready=_enters(outcome))
        if written and outcome.to and held.state in self.atomic:
            self.effects.append(held)
        return bool(written) or (request.again and self.is_written(held, outcome))

    def is_written(self, held: Held, outcome: Outcome) -> bool:
        """Whether the row looks as the outcome would have left it."""
        row = self.rows().get(held.pk)
        if row is None:
            return False
        if outcome.to:
            return (row.state, row.version) == (outcome.to, held.version + 1)
        counted = held.attempt - outcome.released
        return (row.state, row.version, row.attempts, row.claim) == (held.state, held.version, counted, None)

    def do_handback(self, request: ask.HandBack, actor: str, monotonic: float) -> None:
        self.write(
            f"UPDATE job SET ready = 1, attempts = attempts - 1, {FREE} WHERE claim = :token", token=request.token.hex
        )

    def do_reap(self, request: ask.Reap, actor: str, monotonic: float) -> None:
        self.write(f"UPDATE job SET {self.reaped} WHERE {self.expired}")

    def do_markready(self, request: ask.MarkReady, actor: str, monotonic: float) -> None:
        self.write(
            "UPDATE job SET ready = 1 WHERE NOT ready AND claim IS NULL AND state IN ('fresh', 'halfway')"
            " AND crashes < :max_crashes AND (next_attempt IS NULL OR next_attempt <= :now)"
        )

    # What people do

    def move(self, pk: int, state: str) -> None:
        """Move a row by hand; any claim on it ends."""
        self.write(f"UPDATE job SET {self.moved_by_hand} WHERE pk = :pk", pk=pk, state=state, ready=state != "done")

    def unlock(self, pk: int) -> None:
        """End the claim of a row."""
        self.write(f"UPDATE job SET ready = 1, next_attempt = changed, {FREE} WHERE pk = :pk AND claim NOTNULL", pk=pk)

    def retry(self, pk: int) -> None:
        """Have a row attempted now, whatever it did before."""
        self.write(
            "UPDATE job SET ready = 1, next_attempt = changed, failures = 0, crashes = 0"
            " WHERE pk = :pk AND claim IS NULL AND state <> 'done'",
            pk=pk,
        )

    def delete(self, pk: int) -> None:
        """Delete a row."""
        self.write("DELETE FROM job WHERE pk = :pk", pk=pk)

    def save(self, held: Held) -> None:
        """Save the instance that a handler was given, which may be stale; the framework's columns stay out of it."""
        self._of(held, f"{self.saved} WHERE pk = :pk")

    def write(self, statement: str, **given: Any) -> list[Any]:
        """Execute one statement; return its rows."""
        always = {
            "now": self.now,
            "lease": LEASE,
            "max_crashes": MAX_CRASHES,
            "alone_from": self.alone_from,
            "longest": self.longest,
        }
        return self._db.execute(statement, {**always, **given}).fetchall()

    def _of(self, held: Held, changes: str, **given: Any) -> list[Any]:
        named = {"pk": held.pk, "token": held.token.hex, "state": held.state, "until": self.now + LEASE}
        return self.write(f"UPDATE job SET {changes} RETURNING pk", **{**named, **given})

    def _changes(self, outcome: Outcome) -> str:
        if outcome.to:
            return f"state = :to, {ENTERED}"
        if outcome.released:
            return f"ready = 1, attempts = attempts - 1, {FREE}"
        failures = "failures + 1" if outcome.failed else "0"
        return f"ready = 0, next_attempt = :now + {INTERVAL}, failures = {failures}, crashes = 0, {FREE}"


@lru_cache
def database(schema: str) -> sqlite3.Connection:
    """One database in memory for all schedules: making it takes longer than a schedule."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(schema)
    return connection


def _numbered(rows: list[tuple[str | None, int]]) -> list[tuple[int, str | None, int]]:
    return [(pk, *row) for pk, row in enumerate(rows, 1)]


def _enters(outcome: Outcome) -> bool:
    return outcome.to != "done"


def moment(seconds: float) -> datetime:
    """The time of a simulated clock."""
    return START + timedelta(seconds=seconds)


def _row(row: tuple[Any, ...]) -> Row:
    _, state, version, ready, claim, until, due, attempts, failures, crashes, key, priority = row
    token = UUID(claim) if claim else None
    times = (None if time is None else moment(time) for time in (until, due))
    return Row(state, version, bool(ready), token, *times, attempts, failures, crashes, key, priority)  # type: ignore[call-arg]
