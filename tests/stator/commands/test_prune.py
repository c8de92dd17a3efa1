"""``stator prune``: old rows are deleted, and samples of the queue are thinned."""

from datetime import timedelta

import pytest

from stator.models import Depth, Report
from tests.stator.commands.errands import asked, run
from tests.stator.making import ago, raw

pytestmark = pytest.mark.django_db(transaction=True)


def test_prune_deletes_what_is_old_enough():
    report = Report.objects.create(model_label="testapp.errand", object_pk="1", state="new")
    raw(Report).filter(pk=report.pk).update(at=ago(400 * 86400))
    Report.objects.create(model_label="testapp.errand", object_pk="2", state="new")
    none = {"default": 0}
    assert asked("prune") == {"deleted": {"default": 1}, "partitions": none, "thinned": none, "merged": none}
    assert run("prune") == "0 rows deleted from default\n"


def test_prune_leaves_one_sample_of_each_hour():
    start = ago(3 * 86400).replace(minute=0, second=0, microsecond=0)
    for minute in range(5):
        Depth.objects.create(model_label="testapp.errand", minute=start + timedelta(minutes=minute), queued=minute)
    assert run("prune") == "0 rows deleted from default\n5 samples of the queue thinned in default\n"
    assert Depth.objects.get().queued == 4
