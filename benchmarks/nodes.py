"""A spread table over the nodes of Citus: what moves and polls cost its servers, beside a table on PostgreSQL.

``PLAIN_URL=... CITUS_URL=... python -m benchmarks.nodes [--rows 60000] [--polls 200] [--bursts 20]``. A burst are 32
objects in one transaction, one burst each second. The two URLs are of empty databases on this
machine: one of an ordinary server, and one of a coordinator that knows its nodes.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.claims import made
from benchmarks.harness import (
    arguments,
    cpu_of_server,
    database,
    fill,
    make_tables,
    print_table,
    psycopg_parameters,
    spread,
)
from benchmarks.latency import wait_until_done
from benchmarks.report import print_targets, verdict
from benchmarks.spread import divide
from benchmarks.throughput import drain, worker

PLAIN, CLUSTER = "ordinary table, PostgreSQL", "spread table, Citus"
# As docs/how-to/growing.rst says for the role of the workers.
SETTINGS = ("enable_seqscan = off", "jit = off", "enable_hashjoin = off", "enable_mergejoin = off")
# An own process, as in a site; it says when it is ready.
WORKER = """
import django; django.setup()
from benchmarks.models import AsyncItem, DividedItem
from stator.runner import StatorRunner
StatorRunner([{model}]).run()
"""
BURST = 32
NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards ORDER BY nodeid"


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 2000, "polls": 5, "bursts": 2}, rows=60_000, polls=200, bursts=20)
    if kind := os.environ.get("BENCHMARK_KIND"):
        measure(kind, options)
        return
    plain = {"BENCHMARK_KIND": PLAIN, "DATABASE_URL": os.environ["PLAIN_URL"]}
    cluster = {"BENCHMARK_KIND": CLUSTER, "DATABASE_URL": os.environ["CITUS_URL"], "ENGINE": "stator.citus"}
    runs: dict[str, list[dict[str, float]]] = {PLAIN: [], CLUSTER: []}
    for _ in range(options.repeat):
        for name, environment in ((PLAIN, plain), (CLUSTER, cluster)):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.nodes", *sys.argv[1:]],
                env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    figures = [
        "moves/s",
        "worker",
        "servers",
        "coordinator",
        *sorted({key for run in runs[CLUSTER] for key in run if ":" in key}),
    ]
    small = ["a poll", "a second at rest", "an object created", "an object moved"]

    def lines(keys: list[str]) -> list[list[str]]:
        return [
            [
                name,
                *(
                    spread([run[key] for run in some], 0 if key == "moves/s" else 4) if key in some[0] else "-"
                    for key in keys
                ),
            ]
            for name, some in runs.items()
        ]

    os.environ["DATABASE_URL"] = plain["DATABASE_URL"]
    with database():
        print_table(f"Drain of {options.rows:,} rows, CPU s per 1,000", ["", *figures], lines(figures))
        print_table(f"One model, {BURST} objects a second, CPU ms of all servers", ["", *small], lines(small))
    shares = [statistics.median(run[key] for run in runs[CLUSTER]) for key in figures[4:]]
    # The minimum: other load on the machine only ever makes a move dearer.
    plain_cost, cost = (min(run["servers"] for run in runs[name]) for name in (PLAIN, CLUSTER))
    coordinator = min(run["coordinator"] for run in runs[CLUSTER])
    poll, moved = (min(run[key] for run in runs[CLUSTER]) for key in ("a poll", "an object moved"))
    print_targets([
        verdict("servers: CPU of all by that of PostgreSQL", cost / plain_cost, 1.6, most=True),
        verdict("coordinator: CPU s per 1,000", coordinator, 0.008, most=True),
        verdict("a poll of one model: CPU ms of all servers", poll, 4, most=True),
        verdict(f"{BURST} objects a second: CPU ms of all servers for each", moved, 2, most=True),
        verdict("nodes: CPU of the busiest by that of the idlest", max(shares) / min(shares), 1.2, most=True),
    ])  # fmt: skip


def measure(kind: str, options: Any) -> None:
    """Drain a table; print the figures as JSON."""
    import psycopg
    from django.db import connection

    rows = options.rows
    with database():
        from benchmarks.models import AsyncItem, DividedItem

        model: Any = DividedItem if kind == CLUSTER else AsyncItem
        make_tables(model)
        servers: dict[str, Any] = {"coordinator": connection}
        if kind == CLUSTER:
            divide(model, 32)
            given = psycopg_parameters(connection)
            with connection.cursor() as cursor:
                cursor.execute(NODES)
                for host, port in cursor.fetchall():
                    servers[f"{host}:{port}"] = psycopg.connect(
                        **{**given, "host": host, "port": port}, autocommit=True
                    )
                # Citus gives them to the nodes, too.
                for each in SETTINGS:
                    cursor.execute(f"ALTER DATABASE {given['dbname']} SET {each}")
        # The first one makes the rows of the statistics, and the plans.
        worker(model, rows // 10)
        fill(model, rows)
        before = {name: cpu_of_server(each) for name, each in servers.items()}
        spent = drain(model, rows)
        used = {name: 1000 * (cpu_of_server(each) - before[name]) / rows for name, each in servers.items()}
        figures = {"moves/s": rows / spent.seconds, "worker": 1000 * spent.own / rows, "servers": sum(used.values())}
        figures |= small_work(model, servers, options.polls, options.bursts)
        print(json.dumps(figures | used))


def small_work(model: Any, servers: dict[str, Any], polls: int, bursts: int) -> dict[str, float]:
    """Return the CPU ms of all servers for a poll, for a second of a worker at rest, and for an object of a burst."""
    from stator.db.probe import look

    def spent(work: Callable[[], object]) -> float:
        before = sum(map(cpu_of_server, servers.values()))
        work()
        return 1000 * (sum(map(cpu_of_server, servers.values())) - before)

    def create() -> None:
        for _ in range(bursts):
            model.objects.bulk_create([model() for _ in range(BURST)])
            threading.Event().wait(1)

    operations = made(model)
    model.objects.all().delete()
    look(operations)
    poll = spent(lambda: [look(operations) for _ in range(polls)]) / polls
    created = spent(create) / (bursts * BURST)
    process = subprocess.Popen([sys.executable, "-c", WORKER.format(model=model.__name__)])
    try:
        wait_until_done(model)
        rest = spent(lambda: threading.Event().wait(bursts)) / bursts
        both = spent(create) / (bursts * BURST)
        wait_until_done(model)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return {"a poll": poll, "a second at rest": rest, "an object created": created, "an object moved": both - created}


if __name__ == "__main__":
    main()
