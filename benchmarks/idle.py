"""The cost of an idle worker: transactions and CPU.

``python -m benchmarks.idle [--seconds 30] [--repeat 3]``. Thirty seconds include one scheduling pass.
"""

import threading

from benchmarks.harness import arguments, database, make_tables, print_table, spread
from benchmarks.latency import cpu, finish, worker
from benchmarks.report import print_targets, verdict

# Seconds. The server may report a session's transactions up to ten seconds late, including those of the start.
SETTLE = 15


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"seconds": 1}, seconds=30)
    with database():
        from benchmarks.models import AsyncItem, TimedItem

        make_tables(TimedItem, AsyncItem)
        runs = [idle(options.seconds, settle=1 if options.quick else SETTLE) for _ in range(options.repeat)]
        rates, used = [rate for rate, _ in runs], [share for _, share in runs]
        head = ["transactions/s: median (least-most)", "processor %"]
        print_table(f"An idle worker, {options.seconds} s", head, [[spread(rates, 2), spread(used, 2)]])
        print_targets(
            [
                verdict("transactions/s", sorted(rates)[len(rates) // 2], 1.2, most=True),
                verdict("processor %", sorted(used)[len(used) // 2], 0.3, most=True),
            ]
        )


def idle(seconds: int, settle: int) -> tuple[float, float]:
    """Return transactions per second and the percentage of a CPU, measured after ``settle`` seconds.

    The server's own transactions, of vacuum and analyze, are measured over an equal time before and subtracted.
    """
    threading.Event().wait(settle)
    before = transactions()
    threading.Event().wait(seconds)
    own = transactions() - before
    with worker() as process:
        threading.Event().wait(settle)
        before, used = transactions(), cpu(process.pid)
        threading.Event().wait(seconds)
        after, used = transactions(), cpu(process.pid) - used
        finish(process)
    return (after - before - own) / seconds, 100 * used / seconds


def transactions() -> int:
    """Return the transactions of this database so far, after the server has been made to report them all."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        cursor.execute("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()
