"""Whether a worker's memory grows with time, under a load of every kind of handler, tasks and a schedule.

``python -m benchmarks.mixed [--seconds 1800]``
"""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import django
import psutil
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, make_tables, print_table
from benchmarks.report import print_targets, verdict

# Seconds between two portions of work; objects of each kind and tasks in one portion.
EVERY, OBJECTS, TASKS = 0.5, 40, 30
# The number of samples over the whole time; finished rows are deleted at each.
SAMPLES = 360
# The share of the time that is ignored: at first caches fill and the interpreter's arenas grow.
WARM_UP = 0.2
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """The worker's megabytes, descriptors and threads, some minutes after its start."""

    minutes: float
    memory: float
    descriptors: int
    threads: int


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"seconds": 3}, seconds=1800)
    with database():
        from django.apps import apps

        from benchmarks.models import AsyncItem, AtomicItem, BatchItem, KeptItem, SyncItem

        kinds = (AsyncItem, SyncItem, AtomicItem, BatchItem, KeptItem)
        make_tables(*apps.get_app_config("benchmarks").get_models())
        samples, done = loaded(kinds, options.seconds)
        shares = (0, 0.1, 0.2, 0.4, 0.6, 0.8, 1)
        marks = [min(samples, key=lambda one: abs(one.minutes - share * samples[-1].minutes)) for share in shares]
        rows = [[f"{one.minutes:.1f}", f"{one.memory:.1f}", str(one.descriptors), str(one.threads)] for one in marks]
        title = f"A worker under a mixed load for {options.seconds:,} s, {done:,} objects and tasks"
        print_table(title, ["minutes", "resident MB", "descriptors", "threads"], rows)
        print_targets([verdict("MB per ten minutes", growth(samples), 1, most=True)])


def growth(samples: list[Sample]) -> float:
    """Return the growth in megabytes per ten minutes after the warm-up, by least squares."""
    # At least two, however few a crowded machine has let us take.
    warm = [one for one in samples if one.minutes >= WARM_UP * samples[-1].minutes or one in samples[-2:]]
    return 10 * statistics.linear_regression([one.minutes for one in warm], [one.memory for one in warm]).slope


def loaded(kinds: tuple[Any, ...], seconds: float) -> tuple[list[Sample], int]:
    """Return samples of a worker under load, and how much it did."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from benchmarks.mixed import work; work()"], env=dict(os.environ)
    )
    samples: list[Sample] = []
    done, began = 0, time.monotonic()
    pause = threading.Event()
    try:
        while (now := time.monotonic() - began) < seconds:
            if process.poll() is not None:
                raise SystemExit(f"the worker ended by itself, with {process.returncode}")
            feed(kinds)
            if now >= len(samples) * seconds / SAMPLES:
                done += clear(kinds)
                samples.append(sample(process.pid, now / 60))
            pause.wait(EVERY)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    return samples, done


def work() -> None:
    """Run ``runstator`` with a function that is called every 11 seconds, in a process of its own."""
    django.setup()

    import tasks
    from benchmarks.functions import nothing

    @tasks.periodic(every=11)
    def publish() -> None:
        nothing.enqueue()

    call_command("runstator")


def feed(kinds: tuple[Any, ...]) -> None:
    """Create one portion of work."""
    from benchmarks.functions import add, add_in_thread

    for kind in kinds:
        kind.objects.bulk_create(kind() for _ in range(OBJECTS))
    functions: tuple[Any, ...] = (add, add_in_thread)
    for task in functions:
        task.get_backend().enqueue_many(task, [((1, 2), {})] * (TASKS // 2))


def clear(kinds: tuple[Any, ...]) -> int:
    """Delete finished rows; return how many."""
    from tasks.models import Task

    deleted = [kind.objects.filter(state="done").delete()[0] for kind in kinds]
    return sum(deleted) + Task.objects.filter(state="completed").delete()[0]


def sample(pid: int, minutes: float) -> Sample:
    """Return the worker's present use."""
    process = psutil.Process(pid)
    return Sample(minutes, process.memory_info().rss / MEGABYTE, process.num_fds(), process.num_threads())


if __name__ == "__main__":
    main()
