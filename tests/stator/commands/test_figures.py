"""Bounded counts for a model."""

import pytest

from stator.commands import figures
from stator.models import Report
from tests.stator.making import ago, put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db


def failed(seconds, **columns):
    """An errand whose latest attempt failed so long ago."""
    errand = put(Errand, state_ready=False, state_failures=1, **columns)
    report = Report.objects.create(model_label="testapp.errand", object_pk=str(errand.pk), state="new", error="E")
    Report.objects.filter(pk=report.pk).update(at=ago(seconds))
    return errand.pk


def test_rows_are_counted_up_to_one_more_than_the_bound(monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(figures, "COUNTED", 2)
    for _ in range(5):
        put(Errand)
    with django_assert_num_queries(1):
        count = figures.bounded(Errand.objects.all())
    assert (count, figures.shown(count), figures.shown(2)) == (3, "2+", "2")


def test_row_that_was_retried_since_its_report_fails_no_more():
    key = failed(10)
    Errand.stator.filter(pk=key).retry()
    assert figures.failing_pks(Errand.stator.all()) == []
