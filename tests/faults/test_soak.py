"""All faults mixed (F39), in an order that a seed decides, around one worker that is left alone.

The short run has three kinds once; each kind has a test of its own. ``bin/chaos --soak MINUTES`` goes on for so long,
and then the worker must not have grown. ``SEED`` makes the same choice of faults again.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from threading import Event as Flag
from time import monotonic
from typing import Any

import psutil
import pytest
from django.db import connection

from tests.faults.fleet import LEASE, Fleet, logged
from tests.faults.proxy import Proxy
from tests.faults.report import Report
from tests.faults.servers import NO_TEST_DATABASES, address_of, url_through
from tests.faults.test_network import ANYTHING
from tests.faults.test_sqlite import lock_whole_database
from tests.faults.test_zombie import awaken, stop_outside_of_transactions
from tests.processes import WorkerProcess, wait_until
from tests.testapp.faults import Job, ThreadJob
from tests.testapp.harmed import Booking, Failing

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

KEPT_SMALL = (Job, ThreadJob, Booking)
MODELS = (*KEPT_SMALL, Failing)
SECONDS = 60 * float(os.environ.get("SOAK", "1.25"))
SEED = int(os.environ.get("SEED", random.randrange(10**6)))
MEGABYTE = 1024 * 1024
WORKERS = 3
# For whatever is waited for, on the most crowded machine.
PATIENCE = 180


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of the steady worker: megabytes, descriptors, threads; and the database's sessions and megabytes."""

    at: float
    memory: float
    descriptors: int
    threads: int
    sessions: int = 0
    tables: float = 0.0


@dataclass
class Site:
    """The workers and what can be done to them. ``steady`` is harmed by nothing that ends a process."""

    workers: Fleet
    choice: random.Random
    server: Any
    proxy: Proxy | None
    steady: WorkerProcess
    samples: list[Sample] = field(default_factory=list)
    refilled: float = 0.0

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for it, with enough to do meanwhile."""
        self.workers.until(lambda: refill(self) or condition(), PATIENCE)

    def victim(self) -> WorkerProcess:
        return self.choice.choice([worker for worker in self.workers.alive.values() if worker is not self.steady])

    def sample(self) -> None:
        process = psutil.Process(self.steady.pid)
        figures = (process.memory_info().rss / MEGABYTE, process.num_fds(), process.num_threads())
        self.samples.append(Sample(monotonic(), *figures, *_figures_of_server()))


def _figures_of_server() -> tuple[int, float]:
    if connection.vendor != "postgresql":
        return 0, 0.0
    tables = " + ".join(f"pg_total_relation_size('{model._meta.db_table}')" for model in KEPT_SMALL)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*), max({tables}) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend'"
        )
        sessions, size = cursor.fetchone()
    return sessions, size / MEGABYTE


def kill(site):
    site.workers.kill(site.victim().name)
    site.workers.start()


def stop(site):
    victim = site.workers.alive.pop(site.victim().name)
    assert victim.stop(PATIENCE) == 0, victim.output()
    site.workers.start()


def freeze(site):
    victim = site.victim()
    wait_until(lambda: stop_outside_of_transactions(victim))
    Flag().wait(LEASE + 1.5)
    awaken(victim)


def poison(site):
    Failing.objects.bulk_create(Failing(poisoned=True) for _ in range(20))


def crash_server(site):
    site.server.restart("immediate")
    connection.close()


def cut(site):
    site.proxy.cut()


def half_close(site):
    site.proxy.half_close()


def swallow(site):
    site.proxy.open_hole()
    Flag().wait(site.choice.uniform(0.5, 4.0))
    site.proxy.close_hole()


def delay(site):
    site.proxy.delay = 0.5
    Flag().wait(2.0)
    site.proxy.delay = 0.0


def lose_replies(site):
    lost = site.proxy.lost
    site.proxy.lose_replies_to(ANYTHING, 3)
    site.until(lambda: site.proxy.lost >= lost + 3)


def lock_database(site):
    lock_whole_database(site.choice.uniform(0.5, 4.0))


FAULTS = [kill, stop, freeze, poison]
FAULTS_OF = {
    "postgresql": [crash_server, cut, half_close, swallow, delay, lose_replies],
    "sqlite": [lock_database],
    "mysql": [crash_server],
}


def refill(site):
    """Have enough to do, and keep the tables small; at most twice a second."""
    if monotonic() < site.refilled + 0.5:
        return
    site.refilled = monotonic()
    for model in KEPT_SMALL:
        model.objects.filter(state="done").delete()
        if (missing := 30 - model.objects.count()) > 0:
            model.objects.bulk_create(model(seconds=site.choice.uniform(0, 0.3)) for _ in range(missing))


def all_done(site):
    """Whether no object is left. One that was claimed while it was poisoned fails once more, so it is retried again."""
    if monotonic() > site.refilled + 0.5:
        site.refilled = monotonic()
        Failing.stator.failed().retry()
    return not any(model.objects.exclude(state="done").exists() for model in MODELS)


@pytest.fixture
def site(request, fleet):
    """Three workers; but for SQLite on a server of their own, on PostgreSQL by way of a proxy."""
    server = request.getfixturevalue("server") if connection.vendor != "sqlite" else None
    variables = {"STATOR_CONCURRENCY": 10, "STATOR_MAX_CRASHES": 100_000}
    with Proxy(*address_of(server)) if connection.vendor == "postgresql" else nullcontext() as proxy:
        if server:
            url = url_through(proxy, server) if proxy else server.url()
            variables |= {**NO_TEST_DATABASES, "DATABASE_URL": url}
        workers = fleet(*(model._meta.label for model in MODELS), **variables)
        # With the queries that Django keeps in DEBUG, which are forgotten after each object.
        steady = workers.start(DEBUG="true")
        for _ in range(WORKERS - 1):
            workers.start()
        yield Site(workers, random.Random(SEED), server, proxy, steady)
        workers.__exit__(None, None, None)


@pytest.fixture
def watched(request):
    """The history of all models; but for SQLite on the server that is crashed."""
    # First, so that the triggers go before the database of the tests is back.
    if connection.vendor != "sqlite":
        request.getfixturevalue("own")
    watch = request.getfixturevalue("watch")
    for model in MODELS:
        model.objects.all().delete()
    return watch(*MODELS)


def test_nothing_is_lost_or_done_twice_and_no_worker_grows_whatever_happens_around_it(watched, site, thorough):
    done, started = [], monotonic()
    print(f"SEED={SEED}")
    begun = site.workers.starts
    for fault in until_time_is_over(site) if thorough else some_once(site):
        site.until(lambda: all(begun(worker).exists() for worker in site.workers.alive.values()))
        done.append((datetime.now(UTC), fault.__name__))
        fault(site)
        before = begun(site.steady).count()
        site.until(lambda before=before: begun(site.steady).count() > before + 5)
        site.sample()
    Failing.objects.update(poisoned=False)
    site.workers.until(lambda: all_done(site), PATIENCE)
    site.sample()
    site.workers.stop(PATIENCE)

    minutes = (monotonic() - started) / 60
    report = Report(
        f"{WORKERS} workers, {len(MODELS)} models, {minutes:.1f} minutes, {connection.vendor}",
        [watched.history(model) for model in MODELS], done, refused_writes(site.workers.everyone),
    )  # fmt: skip
    print("", *report.lines(), sep="\n")
    if thorough:
        judge_growth(site.samples)
    assert (report.lost, report.doubled) == (0, 0)
    watched.judge(max_crashes=100_000)


def some_once(site: Site) -> list[Callable[[Site], None]]:
    """Three kinds of faults, as the seed says."""
    faults = [*FAULTS, *FAULTS_OF[connection.vendor]]
    return site.choice.sample(faults, 3)


def until_time_is_over(site: Site) -> Iterator[Callable[[Site], None]]:
    """One kind of fault after another, as the seed says."""
    end = monotonic() + SECONDS
    while monotonic() < end:
        yield site.choice.choice([*FAULTS, *FAULTS_OF[connection.vendor]])


def refused_writes(workers):
    """How many outcomes of lost leases the database has refused."""
    return sum(len(logged(worker, "stator.lease_lost")) for worker in workers)


def judge_growth(samples):
    """The medians of the last third must not exceed those of the first, but for noise."""
    third = len(samples) // 3 or 1
    first, last = samples[:third], samples[-third:]
    held = {name: [median(getattr(sample, name) for sample in part) for part in (first, last)] for name in FIGURES}
    minutes = (last[-1].at - first[0].at) / 60
    print(f"in {minutes:.1f} minutes: {', '.join(f'{name} {a:.1f} -> {b:.1f}' for name, (a, b) in held.items())}")
    for name, (allowed, per_minute) in FIGURES.items():
        before, after = held[name]
        assert after - before <= allowed + per_minute * minutes, f"{name} grew from {before} to {after}"


# By how much a figure may be larger at the end, and what may come to it each minute: of memory 1 MB in ten minutes.
FIGURES = {"memory": (8.0, 0.1), "descriptors": (3, 0), "threads": (2, 0), "sessions": (6, 0), "tables": (4.0, 0)}
