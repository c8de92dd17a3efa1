"""Samples of the queue, and the deletion of what is past its retention."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from stator.db import own_tables
from stator.models import Depth, History, Report, Stats
from tests.stator.making import ago, put
from tests.testapp.basic import Rest, Step

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_queue_is_sampled_with_the_wait_of_its_oldest_row(operations):
    put(Step, state_changed=ago(100))
    put(Step, state_ready=False, state_next_attempt=ago(1))
    put(Step, state_ready=False, state_next_attempt=ago(-60))
    put(Step, state="done")
    put(Step, state_ready=False, state_next_attempt=ago(-60), state_failures=2)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for to, handled in (("done", 40), ("stalled", 2), ("", 7)):
        Stats.objects.create(model_label="testapp.step", hour=hour, source="new", to=to, handled=handled)
    own_tables.sample_depths(operations, limit=100)
    own_tables.sample_depths(operations, limit=100)
    depth = Depth.objects.get()
    assert (depth.model_label, depth.queued, depth.failing) == ("testapp.step", 2, 1)
    # None, if an hour has begun meanwhile.
    assert depth.moved in (42, 0)
    assert 99 < depth.oldest < 120


def test_samples_of_all_models_of_a_database_are_kept_by_one_statement(make):
    put(Step)
    models = make(), make(Rest)
    with CaptureQueriesContext(connection) as asked:
        own_tables.sample_depths(*models, limit=100)
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
