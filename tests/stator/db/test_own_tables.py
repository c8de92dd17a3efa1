"""Samples of the queue, and the deletion of what is past its retention."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from stator.db import own_tables
from stator.extensions.stats import chores as of_stats
from stator.extensions.stats.models import MERGED
from stator.models import Depth, History, Report, Stats
from tests.stator.making import ago, at_once, locked_elsewhere, operations_of, put
from tests.testapp.basic import Rest, Step

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def operations():
    return operations_of(Step)


def test_queue_is_sampled_with_the_wait_of_its_oldest_row(operations):
    put(Step, state_changed=ago(100))
    put(Step, state_ready=False, state_next_attempt=ago(1))
    put(Step, state_ready=False, state_next_attempt=ago(-60))
    put(Step, state="done")
    put(Step, state_ready=False, state_next_attempt=ago(-60), state_failures=2)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for to, handled in (("done", 40), ("stalled", 2), ("", 7)):
        Stats.objects.create(model_label="testapp.step", hour=hour, source="new", to=to, handled=handled)
    of_stats.sample_depths(operations, limit=100)
    of_stats.sample_depths(operations, limit=100)
    depth = Depth.objects.get()
    assert (depth.model_label, depth.queued, depth.failing) == ("testapp.step", 2, 1)
    # None, if an hour has begun meanwhile.
    assert depth.moved in (42, 0)
    assert 99 < depth.oldest < 120


def test_samples_of_all_models_of_a_database_are_kept_by_one_statement(operations):
    put(Step)
    models = operations, operations_of(Rest)
    with CaptureQueriesContext(connection) as asked:
        of_stats.sample_depths(*models, limit=100)
    inserts = [each["sql"] for each in asked if each["sql"].startswith("INSERT")]
    assert len(inserts) == 1
    assert sorted(Depth.objects.values_list("model_label", "queued")) == [("testapp.rest", 0), ("testapp.step", 1)]


def test_old_reports_and_statistics_are_pruned(operations):
    for age in (50, 150):
        Report.objects.create(model_label="x", object_pk=str(age), state="a", at=ago(age))
        History.objects.create(model_label="x", object_pk=str(age), version=1, source="a", at=ago(age))
        Stats.objects.create(model_label="x", hour=ago(age), source="a")
        Depth.objects.create(model_label="x", minute=ago(age), queued=1)
    assert own_tables.prune("default", 10, errors=100, history=100, stats=100) == 4
    assert [model.objects.count() for model in (Report, History, Stats, Depth)] == [1, 1, 1, 1]


# Statistics of hours that are over: the rows of all workers become one, and no count is lost


LABEL = "testapp.step"
HOUR = 3600


def hour(back):
    return ago(back * HOUR).replace(minute=0, second=0, microsecond=0)


def add(back, shard, handled, *, to="done", failed=0, seconds=0.0, longest=0.0):
    return Stats.objects.create(
        model_label=LABEL, hour=hour(back), source="new", to=to, shard=shard, handled=handled, failed=failed,
        seconds=seconds, longest=longest,
    )  # fmt: skip


def kept():
    names = ("hour", "to", "shard", "handled", "failed", "seconds", "longest")
    return list(Stats.objects.order_by("hour", "to", "shard").values_list(*names))


def test_shards_of_an_hour_that_is_over_become_one_row(operations):
    add(5, 1, 10, failed=2, seconds=8.0, longest=3.0)
    add(5, 300, 5, seconds=4.0, longest=3.5)
    add(5, 7, 1, to="")
    add(4, 1, 100)
    assert of_stats.merge_stats(operations, 100) == 4
    assert kept() == [
        (hour(5), "", MERGED, 1, 0, 0.0, 0.0),
        (hour(5), "done", MERGED, 15, 2, 12.0, 3.5),
        (hour(4), "done", MERGED, 100, 0, 0.0, 0.0),
    ]
    assert of_stats.merge_stats(operations, 100) == 0
    # A count that comes late is added to the merged row.
    add(4, 1, 7)
    assert of_stats.merge_stats(operations, 100) == 2
    assert kept()[-1] == (hour(4), "done", MERGED, 107, 0, 0.0, 0.0)


def test_this_hour_and_the_one_before_are_left_to_workers(operations):
    add(0, 1, 10)
    add(1, 2, 10)
    assert of_stats.merge_stats(operations, 100) == 0
    assert [row[2] for row in kept()] == [2, 1]


def test_many_shards_are_merged_in_bounded_steps(operations, monkeypatch):
    monkeypatch.setattr(of_stats, "PARTS", 10)
    Stats.objects.bulk_create(
        Stats(model_label=LABEL, hour=hour(5), source="new", to="done", shard=shard, handled=1) for shard in range(35)
    )
    passes = 0
    while of_stats.merge_stats(operations, 5):
        passes += 1
    assert passes == 4
    assert kept() == [(hour(5), "done", MERGED, 35, 0, 0.0, 0.0)]


def test_workers_that_merge_at_once_lose_no_count(operations):
    for back in range(3, 13):
        for shard in range(8):
            add(back, shard, 1)

    def merge():
        while of_stats.merge_stats(operations_of(Step, "vendor"), 20):
            pass

    at_once(*[merge] * 4)
    while of_stats.merge_stats(operations, 100):
        pass
    assert [row[2:4] for row in kept()] == [(MERGED, 8)] * 10


@pytest.mark.postgresql
def test_row_that_somebody_holds_is_left_with_its_others(operations):
    add(5, 1, 10)
    held = add(5, 2, 20)
    with locked_elsewhere(held):
        assert of_stats.merge_stats(operations, 100) == 0
    assert of_stats.merge_stats(operations, 100) == 2
