"""R4.2: many entities that begin at one moment spread over the period, keep it in the mean, and tick in time."""

from collections import Counter
from datetime import datetime, timedelta

import pytest

from tasks.extensions.schedules.schedules import ScheduleQuerySet
from tasks.models import Schedule, Task
from tests.faults.fleet import POLL_INTERVAL
from tests.proofs.proof import percentile
from tests.sizes import CROWDED, size
from tests.tasks.making import make_queue

pytestmark = [pytest.mark.proof, pytest.mark.fault, pytest.mark.django_db(transaction=True)]

ENTITIES, PERIOD, PERIODS = size(1000, 100), size(60, 2.5), size(10, 2)
JITTER = PERIOD / 4
# One for each second of the period in full, or as wide that in the mean as many ticks fall into it.
BUCKETS = size(60, 6)
WORKERS = 2


def started_together():
    """Make the schedules, all at one moment."""
    queue = make_queue("ticks")
    given = {"queue": queue, "action": "act", "missed": "all", "overlap": "allow", "period": PERIOD, "jitter": JITTER}
    schedules = [Schedule(name="tick", entity=str(number), **given) for number in range(ENTITIES)]
    # Past the check of the period: the short one of the suite is within a lease.
    super(ScheduleQuerySet, Schedule.objects.all()).bulk_create(schedules)


def nominal_times():
    """Return for each schedule where on its timetable its next tick is, and the index of that."""
    rows = Schedule.objects.exclude(nominal=None).values_list("pk", "nominal", "tick_index")
    return {pk: (nominal, index) for pk, nominal, index in rows}


def fired():
    """Return for each schedule the index, the planned moment and the commit's of each tick, in order."""
    found = {}
    for told, created in Task.objects.order_by("pk").values_list("metadata", "created").iterator():
        found.setdefault(told["schedule"], []).append((told["tick"], datetime.fromisoformat(told["planned"]), created))
    return found


def fullest_bucket(moments, start):
    """Return how many times as many as in the mean fall into the fullest part of the last period."""
    buckets = Counter((moment - start) // timedelta(seconds=PERIOD / BUCKETS) for moment in moments)
    buckets = [number for place, number in buckets.items() if 0 <= place < BUCKETS]
    assert sum(buckets) > 0.8 * ENTITIES, "the last period has not all of its ticks"
    return max(buckets) * BUCKETS / ENTITIES


def test_entities_that_begin_at_one_moment_spread_keep_their_mean_and_tick_in_time(proof, watch, fleet):
    proof = proof("R4.2", full=1200, short=500)
    workers = fleet("tasks.Schedule", STATOR_POLL_INTERVAL=POLL_INTERVAL)
    for _ in range(WORKERS):
        workers.start()
    started_together()
    workers.until(lambda: len(nominal_times()) == ENTITIES, proof.left)
    first = nominal_times()
    assert {index for _, index in first.values()} == {0}

    def done():
        indexes = [index for _, index in nominal_times().values()]
        proof.progress(f"{sum(indexes):,} ticks of {ENTITIES * (PERIODS + 1):,}")
        return min(indexes) > PERIODS

    workers.until(done, proof.left)
    workers.stop()

    ticks, last = fired(), nominal_times()
    lost = {pk: set(range(last[pk][1])) - {index for index, *_ in ticks[pk]} for pk in first}
    late = sorted((created - planned).total_seconds() for each in ticks.values() for _, planned, created in each)
    spans = [(each[PERIODS][1] - each[0][1]).total_seconds() for each in ticks.values()]
    start = max(nominal for nominal, _ in first.values()) + timedelta(seconds=(PERIODS - 0.5) * PERIOD)
    proof.lost = sum(map(len, lost.values())) + sum(Schedule.objects.values_list("dropped", flat=True))
    proof.doubled = sum(len(each) - len({index for index, *_ in each}) for each in ticks.values())
    proof.figures |= {
        "entities": ENTITIES, "period": PERIOD, "jitter": JITTER, "periods": PERIODS, "ticks": len(late),
        "fullest bucket in means": fullest_bucket((at for each in ticks.values() for _, at, _ in each), start),
        "mean period": sum(spans) / len(spans) / PERIODS, "late by s, median": percentile(late, 0.5),
        "p99": percentile(late, 0.99), "longest": late[-1],
    }  # fmt: skip
    assert proof.figures["fullest bucket in means"] < 3
    for pk, (nominal, _) in first.items():
        assert last[pk][0] - nominal == timedelta(seconds=PERIOD) * last[pk][1], "the mean period is not exact"
    assert late[0] >= 0
    assert late[-1] <= POLL_INTERVAL + CROWDED
    proof.judge()
