"""Each benchmark runs on tiny sizes and prints its table; what it measures there says nothing, and is not looked at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sizes import PATIENCE

ROOT = Path(__file__).parent.parent.parent

# Arguments, and what has to be in the output: the cases, and targets with what they are divided by.
BENCHMARKS = {
    "throughput": (
        ["--rows", "40", "--repeat", "2"],
        ["plain loop, tuples", "worker, sync", "chain of 4", "by that of plain loop, Django instances"],
    ),
    "processes": (["--rows", "40"], ["four processes", "waiting for a lock: "]),
    "sets": (["--rows", "40"], ["SQL transition with history", "atomic, batch of 500: per second"]),
    "latency": (["--objects", "3", "--rows", "40"], ["half loaded worker: p99 ms"]),
    "create": (["--objects", "10"], ["bulk_create, managed model: time for each by that of bulk_create, plain model"]),
    "steps": (["--steps", "20", "--repeat", "1"], ["step: time for each by that of bare INSERT"]),
    "related": ([], ["nobody waits", "parts of one object: worker CPU by that of nobody waits"]),
    "idle": ([], ["transactions/s", "processor %"]),
    "backend": (["--tasks", "5", "--alone"], ["enqueue, one commit for all", "run, async, no result: per second"]),
    "queues": (
        # Without the other queues, which would have to be installed.
        ["--tasks", "60", "--waiting", "300", "--alone"],
        ["publish_many, 1,000 at a time: per second", "claim any among 300 by that among 60"],
    ),
    # Without servers, which would have to be installed.
    "http": (["--only", "no server"], ["publish, claim, resolve: bare psycopg", "publish, claim, resolve: in Python"]),
    "claims": (["--large", "3000", "--largest", "4000", "--claims", "1"], ["claim in 4,000 rows by that in 2,000"]),
    "memory": (["--rows", "40"], ["MB per 100,000 rows"]),
    "partitions": (
        ["--events", "200", "--rows", "40"],
        ["p99 of a claim", "dead rows it left: 0", "p99 of claims from the drop on by that before"],
    ),
    "spread": (
        ["--rows", "40", "--small", "600", "--large", "1200", "--claims", "1", "--tasks", "8"],
        ["8 partitions: time for each by that of ordinary", "claim in the large"],
    ),
    "schemas": (
        ["--schemas", "3", "--rows", "30", "--seconds", "1"],
        ["An idle worker", "3 schemas", "moves/s by those of one"],
    ),
    "pages": (
        ["--rows", "200", "--kept", "200", "--only", "condition=stuck"],
        ["few stuck: benchmarks/pageitem/?condition=stuck", "Slowest of ", "nothing well: ", "page, median in ms"],
    ),
    "churn": (
        ["--seconds", "1", "--rows", "200"],
        ["no old snapshot: ", "an old snapshot held: "],
    ),
    "record_cost": (["--records", "40", "--repeat", "1"], ["with history, 100 rows"]),
    "wal": (["--jobs", "5"], ["move with history", "no result: bytes of WAL"]),
    "walks": (
        ["--rows", "20"],
        ["a batch ends", "event that moves", "hops from create to recorded", "slots of a claim"],
    ),
    "shadow": (["--rows", "60", "--moved", "5"], ["rows of the table that workers wrote 0, target <= 0: met"]),
    "undo": (
        ["--rows", "60", "--workers", "1"],
        ["beside workers, due at once: per second", "statements by Django's cursors"],
    ),
    "horizon": (
        ["--only", "stator-tasks", "--rates", "20", "--places", "2", "--calm", "1", "--phase", "c=clean:1s"],
        ["stator-tasks", "recovered after s"],
    ),
    "mixed": (["--seconds", "1"], ["resident MB", "MB per ten minutes"]),
}


def run(name: str, *arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    """The benchmark in a process of its own, for it sets up Django for itself."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", *arguments],
        cwd=ROOT, env={**environment, "DATABASE_URL": url}, capture_output=True, text=True, check=False,
        timeout=4 * PATIENCE,
    )  # fmt: skip


@pytest.mark.postgresql
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_prints_its_table_with_targets(name: str, scratch_url: str) -> None:
    arguments, expected = BENCHMARKS[name]
    done = run(name, *arguments, url=scratch_url)
    assert done.returncode == 0, done.stderr
    for text in [*expected, "Python 3.", "postgresql 1"]:
        assert text in done.stdout


@pytest.mark.sqlite
def test_the_one_for_sqlite_brings_its_own_file() -> None:
    done = run("sqlite", "--rows", "40", url="sqlite:///nowhere/to/be.sqlite3")
    assert done.returncode == 0, done.stderr
    assert "sqlite 3" in done.stdout
    assert "async: per second" in done.stdout
