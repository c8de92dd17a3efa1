"""The cost of an idle worker: transactions, CPU of worker and server, and how soon it is ready.

``python -m benchmarks.idle [--seconds 30] [--repeat 3]``. Thirty seconds include one scheduling pass. If the server can
compile statements (JIT), workers are measured with its defaults and without its compiler.
"""

import statistics
import sys
import threading
import time
from typing import NamedTuple

from benchmarks.harness import arguments, database, make_tables, print_table, server_cpu, spread
from benchmarks.latency import cpu, finish, worker
from benchmarks.report import print_targets, verdict

# Seconds. The server may report a session's transactions, also its first ones, up to ten seconds late.
SETTLE = 15

DEFAULTS, PLAIN = "the server's defaults", "its compiler off"


class Idle(NamedTuple):
    """Figures of one worker; ``start``: seconds from the start of its process until its first object is done."""

    transactions: float
    own: float
    server: float
    start: float


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"seconds": 1}, seconds=30)
    with database():
        from benchmarks.models import AsyncItem, TimedItem

        make_tables(TimedItem, AsyncItem)
        runs: dict[str, list[Idle]] = {DEFAULTS: [], **({PLAIN: []} if has_compiler() else {})}
        settle = 1 if options.quick else SETTLE
        for turn in range(options.repeat):
            for name, measured in runs.items():
                lasts = 2 * (settle + options.seconds)
                print(f"run {turn + 1} of {options.repeat}, {name}: {lasts} s", file=sys.stderr, flush=True)
                variables = {"PGOPTIONS": "-c jit=off"} if name == PLAIN else {}
                measured.append(idle(options.seconds, settle, **variables))
        head = ["", "transactions/s: median (least-most)", "processor %", "processor % of the server", "start, s"]
        lines = [
            [name, *(spread(list(values), 2) for values in zip(*measured, strict=True))]
            for name, measured in runs.items()
        ]
        print_table(f"An idle worker, {options.seconds} s", head, lines)
        print_targets(targets({name: median(measured) for name, measured in runs.items()}))


def median(runs: list[Idle]) -> Idle:
    """Return the median of each figure."""
    return Idle(*(statistics.median(values) for values in zip(*runs, strict=True)))


def targets(measured: dict[str, Idle]) -> list[str]:
    """Return one line for each target with its result."""
    found = measured[DEFAULTS]
    lines = [
        verdict("transactions/s", found.transactions, 1.2, most=True),
        verdict("processor %", found.own, 0.3, most=True),
    ]
    if plain := measured.get(PLAIN):
        of = "by that without its compiler"
        lines.append(verdict(f"processor % of the server {of}", found.server / max(plain.server, 0.01), 2, most=True))
        lines.append(verdict(f"start {of}", found.start / plain.start, 1.5, most=True))
    return lines


def has_compiler() -> bool:
    """Return whether the server compiles statements that it expects to take long."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_jit_available()")
        return bool(cursor.fetchone()[0])


def idle(seconds: int, settle: int, **environment: str) -> Idle:
    """Return the figures of a worker, measured after ``settle`` seconds.

    The server's own transactions, of vacuum and analyze, are measured over an equal time before and subtracted.
    """
    threading.Event().wait(settle)
    before = transactions()
    threading.Event().wait(seconds)
    own = transactions() - before
    began = time.monotonic()
    with worker(**environment) as process:
        start = time.monotonic() - began
        threading.Event().wait(settle)
        before, used, served = transactions(), cpu(process.pid), server_cpu()
        threading.Event().wait(seconds)
        after, used, served = transactions(), cpu(process.pid) - used, server_cpu() - served
        finish(process)
    return Idle((after - before - own) / seconds, 100 * used / seconds, 100 * served / seconds, start)


def transactions() -> int:
    """Return the transactions of this database so far, after the server has been made to report them all."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        cursor.execute("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()
