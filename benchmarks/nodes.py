"""A spread table over the nodes of Citus: what a move costs each of them, beside an ordinary table on PostgreSQL.

``PLAIN_URL=... CITUS_URL=... python -m benchmarks.nodes [--rows 60000]``. The two URLs are of empty databases on this
machine: one of an ordinary server, and one of a coordinator that knows its nodes.
"""

import json
import os
import statistics
import subprocess
import sys
from typing import Any

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
from benchmarks.report import print_targets, verdict
from benchmarks.spread import divide
from benchmarks.throughput import drain, worker

PLAIN, CLUSTER = "ordinary table, PostgreSQL", "spread table, Citus"
# As docs/how-to/growing.rst says for the role of the workers.
SETTINGS = ("enable_seqscan = off", "jit = off", "enable_hashjoin = off", "enable_mergejoin = off")
NODES = "SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards ORDER BY nodeid"


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 2000}, rows=60_000)
    if kind := os.environ.get("BENCHMARK_KIND"):
        measure(kind, options.rows)
        return
    plain = {"BENCHMARK_KIND": PLAIN, "DATABASE_URL": os.environ["PLAIN_URL"]}
    cluster = {"BENCHMARK_KIND": CLUSTER, "DATABASE_URL": os.environ["CITUS_URL"], "ENGINE": "stator.citus"}
    runs: dict[str, list[dict[str, float]]] = {PLAIN: [], CLUSTER: []}
    for _ in range(options.repeat):
        for name, environment in ((PLAIN, plain), (CLUSTER, cluster)):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.nodes", "--rows", str(options.rows)],
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
    lines = [
        [
            name,
            *(
                spread([run[key] for run in some], 0 if key == "moves/s" else 4) if key in some[0] else "-"
                for key in figures
            ),
        ]
        for name, some in runs.items()
    ]
    os.environ["DATABASE_URL"] = plain["DATABASE_URL"]
    with database():
        print_table(f"Drain of {options.rows:,} rows, CPU s per 1,000", ["", *figures], lines)
    shares = [statistics.median(run[key] for run in runs[CLUSTER]) for key in figures[4:]]
    # The minimum: other load on the machine only ever makes a move dearer.
    plain_cost, cost = (min(run["servers"] for run in runs[name]) for name in (PLAIN, CLUSTER))
    coordinator = min(run["coordinator"] for run in runs[CLUSTER])
    print_targets([
        verdict("servers: CPU of all by that of PostgreSQL", cost / plain_cost, 1.6, most=True),
        verdict("coordinator: CPU s per 1,000", coordinator, 0.012, most=True),
        verdict("nodes: CPU of the busiest by that of the idlest", max(shares) / min(shares), 1.2, most=True),
    ])  # fmt: skip


def measure(kind: str, rows: int) -> None:
    """Drain a table; print the figures as JSON."""
    import psycopg
    from django.db import connection

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
        print(json.dumps(figures | used))


if __name__ == "__main__":
    main()
