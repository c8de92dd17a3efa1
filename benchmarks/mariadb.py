"""How many objects one worker process moves per second on MariaDB, and then the same on PostgreSQL.

``python -m benchmarks.mariadb [--rows 20000] [--repeat 3]``

Needs Debian's packages mariadb-server-core and mariadb-client, and ``bin/setup --mariadb``.
"""

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec

from benchmarks.harness import arguments, database, make_tables
from benchmarks.report import Target, measure, show
from benchmarks.sets import transition
from benchmarks.throughput import worker
from tests.servers.mariadb import MariaDBError
from tests.servers.mariadb.server import find_program

ASYNC, SYNC, BATCH, MATCH = "async", "sync", "batch of 500", "SQL transition"
TARGETS = {"mariadb": {ASYNC: (Target(5_000),), MATCH: (Target(20_000),)}, "postgresql": {}}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 1000}, extend=_extend, rows=20_000)
    if options.on == "mariadb" and (missing := _missing()):
        print(f"left out: {missing}")
        return
    with database(options.on):
        from benchmarks import models as m

        make_tables(m.AsyncItem, m.SyncItem, m.BatchItem, m.SetItem)
        rows = options.rows
        cases = {
            ASYNC: (rows, lambda: worker(m.AsyncItem, rows, 500)),
            SYNC: (rows, lambda: worker(m.SyncItem, rows, 500)),
            BATCH: (rows, lambda: worker(m.BatchItem, rows)),
            MATCH: (rows, lambda: transition(m.SetItem, rows)),
        }
        show(f"Drain of {rows:,} rows, one process", "moves", measure(cases, options.repeat), TARGETS[options.on])
    if options.on == "mariadb":
        # A process has one DATABASES setting.
        again = [sys.executable, "-m", "benchmarks.mariadb", *sys.argv[1:], "--on", "postgresql"]
        elsewhere = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        sys.exit(subprocess.run(again, env=elsewhere, check=False).returncode)


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--on", choices=list(TARGETS), default="mariadb", help="the first database; mariadb by default")


def _missing() -> str:
    """Return what MariaDB needs and is not here, or ""."""
    if not find_spec("MySQLdb"):
        return "the driver is not installed; run bin/setup --mariadb"
    try:
        find_program("mariadbd")
    except MariaDBError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
