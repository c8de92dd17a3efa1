"""Tasks for programs: publishing in bulk, claiming and resolving by hundreds, and claims among very many that wait.

``python -m benchmarks.queues [--tasks 10000] [--waiting 1000000] [--claims 30] [--repeat 3] [--alone]``

Publishing is compared with other queues, which are installed into var/peers if they are missing; ``--alone`` leaves
them out.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, make_tables, print_table, psycopg_parameters, spread
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.install import Unavailable
from benchmarks.peers.run import Failed, enqueue
from benchmarks.report import Run, Spent, Target, measure, note, print_targets, show, verdict, watch
from benchmarks.throughput import INSTANCES, PLANNER, plain_loop

BATCH = 100
BARE, CYCLE = "publish, claim, resolve: bare psycopg", "publish, claim, resolve: in Python"
PUBLISH, RESOLVE, EACH = "publish_many, 1,000 at a time", "claim + resolve_many, by 100s", "claim by 100s, resolve each"
SAME_ROWS, PUBLISH_ONE = "bare SQL that writes the same rows, by 100s", "publish, one at a time"
PUBLISHING_PEERS = ("pgqueuer", "graphile-worker", "procrastinate")

# Fractions of the rates of the bare cycle and of the plain loop.
TARGETS = {
    CYCLE: (Target(1 / 3, of=BARE),),
    PUBLISH: (Target(0.6, of=INSTANCES),),
    RESOLVE: (Target(0.6, of=INSTANCES), Target(0.6, of=SAME_ROWS)),
}


def main() -> None:
    """Measure and print."""
    quick = {"tasks": 300, "waiting": 2000, "claims": 2}
    options = arguments(__doc__, quick=quick, extend=_alone, tasks=10_000, waiting=1_000_000, claims=30)
    with database():
        from django.core.management import call_command

        from benchmarks.models import AsyncItem

        call_command("migrate", verbosity=0)
        make_tables(AsyncItem)
        count = options.tasks
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            BARE: (count // 10, lambda: bare_cycles(count // 10)),
            CYCLE: (count // 10, lambda: cycles(count // 10)),
            INSTANCES: (count, lambda: plain_loop(AsyncItem, count, BATCH, instances=True)),
            PUBLISH_ONE: (count // 10, lambda: spent(publish_each, count // 10)),
            PUBLISH: (count, lambda: spent(publish, count)),
            SAME_ROWS: (count, lambda: spent(write_the_same_rows, count, before=publish)),
            RESOLVE: (count, lambda: spent(work, count, before=publish)),
            # Each resolve takes several statements of its own.
            EACH: (count // 10, lambda: spent(work_one_by_one, count // 10, before=publish)),
        }
        measured = measure(cases, options.repeat)
        if not options.alone:
            measured |= peers(count, options.repeat)
        show(f"{count:,} tasks for programs; the loop in batches of {BATCH}", "tasks", measured, TARGETS)
        kinds = ["any", "with metadata that half have", "with metadata that 1,000 have"]
        sizes = [count, options.waiting]
        columns = [claims_among(size, options.claims) for size in sizes]
        for size, column in zip(sizes, columns, strict=True):
            for kind, times in zip(kinds, column, strict=True):
                note(f"claim {kind} among {size:,}, ms", statistics.median(times), less=True)
        rows = [[kind, *(spread(column[at], 1) for column in columns)] for at, kind in enumerate(kinds)]
        print_table(f"A claim of {BATCH}, ms, among tasks that wait", ["", *(f"{size:,}" for size in sizes)], rows)
        # The minimum: other load on the machine only ever makes a claim slower.
        among = f"among {sizes[1]:,} by that among {sizes[0]:,}"
        print_targets([
            verdict(f"claim {kind} {among}", min(large) / min(small), 1.5, most=True)
            for kind, small, large in zip(kinds, *columns, strict=True)
        ])  # fmt: skip


def _alone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alone", action="store_true", help="without other queues")


def peers(count: int, repeat: int) -> dict[str, list[Run]]:
    """Return how fast other queues are given jobs; if one cannot be run, print why."""
    measured: dict[str, list[Run]] = {}
    for peer in [peer for peer in PEERS if peer.name in PUBLISHING_PEERS]:
        try:
            for manner, jobs, each in (("one at a time", count // 10, True), ("1,000 at a time", count, False)):
                rates = [enqueue(peer, jobs, each=each) for _ in range(repeat)]
                measured[f"{peer.name}: enqueue, {manner}"] = [Run(rate, 0, 0) for rate in rates]
        except (Unavailable, Failed) as error:
            print(f"{peer.name} is left out: {error}", file=sys.stderr)
    return measured


BARE_TABLE = """
DROP TABLE IF EXISTS bare_task;
CREATE TABLE bare_task (id bigserial PRIMARY KEY, queue bigint, action text, data jsonb, priority bigint,
  state text DEFAULT 'pending', attempts int DEFAULT 0, claim uuid, until timestamptz, result jsonb);
CREATE INDEX bare_task_ready ON bare_task (queue, priority, id) WHERE state = 'pending' AND claim IS NULL
"""
BARE_PUBLISH = "INSERT INTO bare_task (queue, action, data, priority) VALUES (1, %s, %s, %s) RETURNING *"
BARE_CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT id FROM bare_task WHERE queue = 1 AND state = 'pending' AND claim IS NULL
  ORDER BY priority, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE bare_task SET claim = %s, until = now() + interval '60 seconds', attempts = attempts + 1
FROM picked WHERE bare_task.id = picked.id RETURNING bare_task.*
"""
BARE_RESOLVE = "UPDATE bare_task SET state = 'completed', result = %s, claim = NULL WHERE id = %s AND claim = %s"


def bare_cycles(count: int) -> Spent:
    """Measure cycles of three bare statements, one at a time, on a table of their own."""
    from uuid import uuid4

    import psycopg
    from django.db import connection
    from psycopg.types.json import Jsonb

    with psycopg.connect(**psycopg_parameters(connection), autocommit=True) as server:
        server.execute(BARE_TABLE)
        with watch() as spent:
            for number in range(count):
                server.execute(BARE_PUBLISH, ["nothing", Jsonb({"n": number}), number])
                token = uuid4()
                [row] = server.execute(BARE_CLAIM, [token]).fetchall()
                assert server.execute(BARE_RESOLVE, [Jsonb({"ok": True}), row[0], token]).rowcount == 1
    return spent


def cycles(count: int) -> Spent:
    """Measure cycles of publish, claim and resolve, one at a time."""
    clear()
    own = queue()
    # So that statements are compiled, and prepared by the server.
    work_in_cycles(own, 20)
    with watch() as spent:
        work_in_cycles(own, count)
    return spent


def work_in_cycles(own: Any, count: int) -> None:
    """Publish, claim and resolve a task, ``count`` times."""
    for number in range(count):
        own.publish("nothing", {"n": number})
        [claim] = own.claim(worker="bench")
        claim.resolve({"ok": True})


def spent(measured: Callable[[int], None], count: int, before: Callable[[int], None] | None = None) -> Spent:
    """Measure ``measured(count)``, after ``before(count)``, which is not measured."""
    clear()
    if before:
        before(count)
    with watch() as spent:
        measured(count)
    return spent


def queue() -> Any:
    """Return the benchmark's queue."""
    from tasks.models import Queue

    return Queue.objects.get_or_create(name="benchmark", defaults={"actions_elsewhere": True})[0]


def clear() -> None:
    """Empty the tables."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE tasks_task, tasks_run, stator_history CASCADE")


def publish(count: int) -> None:
    """Publish ``count`` tasks."""
    for start in range(0, count, 1000):
        queue().publish_many({"action": "nothing", "data": {"n": n}} for n in range(start, min(count, start + 1000)))


def publish_each(count: int) -> None:
    """Publish ``count`` tasks with a commit for each."""
    own = queue()
    for number in range(count):
        own.publish("nothing", {"n": number})


def work(count: int) -> None:
    """Claim and resolve all tasks in batches."""
    own = queue()
    done = 0
    while held := own.claim(worker="bench", limit=BATCH):
        assert not own.resolve_many(dict.fromkeys(held))
        done += len(held)
    assert done == count


# What a task's life has to write, and nothing else: no rule of the queue, fence, statistics or check of a lease.
SAME_CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT id FROM tasks_task WHERE queue_id = %s AND state_ready
  ORDER BY priority, CASE WHEN worker_ids = '[]' THEN 1 ELSE 0 END, id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED),
done AS (
  UPDATE tasks_task t SET state_ready = false, state_claim = %s, state_attempts = state_attempts + 1,
    state_attempted = statement_timestamp(), state_locked_until = statement_timestamp() + interval '60s'
  FROM picked WHERE t.id = picked.id RETURNING t.*),
noted AS (
  INSERT INTO tasks_run (task_id, version, worker, token, claimed, lease_until, outcome, reason)
  SELECT id, state_version, 'bench', state_claim, state_attempted, state_locked_until, '', '' FROM done)
SELECT * FROM done
"""
SAME_RESOLVE = """
WITH done AS (
  UPDATE tasks_task t SET state = 'completed', state_changed = statement_timestamp(), state_claim = NULL,
    state_locked_until = NULL, state_attempted = NULL, state_attempts = 0, state_version = state_version + 1
  FROM unnest(%s::bigint[]) v(id) WHERE t.id = v.id RETURNING t.id, t.state_version),
kept AS (
  INSERT INTO stator_history (model_label, object_pk, version, kind, source, "to", actor, reason, worker, attempts,
    error, fingerprint)
  SELECT 'tasks.task', id::text, state_version, 'move', 'pending', 'completed', '', '', 'bench', 1, '', '' FROM done)
UPDATE tasks_run SET ended = statement_timestamp(), outcome = 'succeeded' FROM done
WHERE tasks_run.token = %s AND tasks_run.task_id = done.id
"""


def write_the_same_rows(count: int) -> None:
    """Claim and resolve all tasks in batches by bare SQL that writes the same rows as :func:`work`, as tuples."""
    from uuid import uuid4

    from django.db import connection
    from psycopg.types.datetime import TimestamptzLoader

    pk, done = queue().pk, 0
    with connection.connection.cursor() as cursor:
        # Like the plain loop, use psycopg's loader, because Django's takes ten times as long.
        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        for name in PLANNER:
            cursor.execute(f"SET {name} = off")
        token = uuid4()
        while taken := cursor.execute(SAME_CLAIM, [pk, BATCH, token], prepare=True).fetchall():
            cursor.execute(SAME_RESOLVE, [[row[0] for row in taken], token], prepare=True)
            done, token = done + cursor.rowcount, uuid4()
        for name in PLANNER:
            cursor.execute(f"RESET {name}")
    assert done == count


def work_one_by_one(count: int) -> None:
    """Claim all tasks in batches, and resolve each by itself."""
    own = queue()
    while held := own.claim(worker="bench", limit=BATCH):
        for claim in held:
            claim.resolve()


def claims_among(waiting: int, claims: int) -> list[list[float]]:
    """Return the milliseconds of claims among ``waiting`` tasks: of any task, and with metadata."""
    from django.db import connection

    clear()
    own = queue()
    with connection.cursor() as cursor:
        own.publish("nothing", metadata={"half": 0, "few": 0})
        # Copies of the first task with other numbers, as publishing would write them, but in one statement.
        cursor.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'tasks_task'")
        names = [name for (name,) in cursor.fetchall() if name not in ("id", "metadata", "priority")]
        listed = ", ".join(f'"{name}"' for name in names)
        cursor.execute(
            f"INSERT INTO tasks_task ({listed}, metadata, priority)"
            f" SELECT {listed}, jsonb_build_object('half', n %% 2, 'few', n %% %s), priority + n"
            " FROM tasks_task, generate_series(1, %s) n",
            [max(1, waiting // 1000), waiting - 1],
        )
        cursor.execute("VACUUM ANALYZE tasks_task")
    # With few tasks, half of them may be less than a batch.
    batch = min(BATCH, waiting // 2)
    found = []
    for metadata in (None, {"half": 0}, {"few": 0}):
        times = []
        for number in range(claims):
            started = time.perf_counter()
            held = own.claim(worker=f"bench-{number}", limit=batch, metadata=metadata)
            times.append((time.perf_counter() - started) * 1000)
            if len(held) != batch:
                raise SystemExit(f"{len(held)} tasks were claimed instead of {batch}")
            put_back([claim.task.pk for claim in held])
        found.append(times)
    return found


def put_back(pks: list[int]) -> None:
    """Make tasks wait as if nobody had claimed them, so that each claim finds the same tasks."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tasks_run WHERE task_id = ANY(%s)", [pks])
        cursor.execute(
            "UPDATE tasks_task SET state_ready = true, state_claim = NULL, state_locked_until = NULL,"
            " state_attempted = NULL, state_attempts = 0 WHERE id = ANY(%s)",
            [pks],
        )


if __name__ == "__main__":
    main()
