"""Texts and values of programs, actions and people are bounded before they are stored. Security rule S6."""

import pytest
from django.db import models

from stator.models import History, Report
from stator.testing import attempt
from tasks.conf import load_settings
from tasks.exceptions import PublishRefused
from tasks.models import Run, Task
from tests.tasks.making import claim_one, make_queue, make_task
from tests.testapp import actions as examples

pytestmark = pytest.mark.django_db
HUGE = "x" * 1_000_000


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def lengths(row):
    """How long each text of a row is."""
    texts = (models.CharField, models.TextField)
    return {field.name: len(getattr(row, field.name) or "") for field in row._meta.fields if isinstance(field, texts)}


@pytest.mark.parametrize(
    "message",
    [
        {"data": {"text": HUGE}}, {"data": deep(1000)}, {"metadata": {"title": HUGE}}, {"key": HUGE},
        {"metadata": {HUGE: 1}}, {"worker_ids": [HUGE]}, {"worker_ids": ["a"] * 10_000},
    ],
    ids=["data", "depth", "metadata", "key", "name", "worker", "workers"],
)  # fmt: skip
def test_publication_beyond_a_bound_is_refused_at_once(message):
    queue = make_queue()
    with pytest.raises(PublishRefused) as refused:
        queue.publish("resize", **message)
    assert len(str(refused.value)) < 500
    assert not Task.objects.exists()


def test_many_at_once_are_refused():
    queue = make_queue()
    with pytest.raises(PublishRefused):
        queue.publish_many({"action": "resize"} for _ in range(load_settings().PUBLISH_LIMIT + 1))
    assert not Task.objects.exists()


@pytest.mark.parametrize("end", ["fail", "release", "cancel"])
def test_what_a_holder_says_at_the_end_is_cut(end):
    task = make_task(make_queue())
    getattr(claim_one(task.queue), end)(HUGE)
    assert 0 < len(Run.objects.get().reason) <= 8000
    for row in [*Report.objects.all(), *History.objects.all()]:
        assert max(lengths(row).values()) <= 8000


def test_error_of_an_action_is_cut():
    task = make_queue().publish("break", {"message": HUGE[:200_000]}).task
    attempt(task)
    report = lengths(Report.objects.get())
    assert 0 < report["message"] <= 1000
    assert 0 < report["traceback"] <= 8000
    assert all(max(lengths(event).values()) <= 2000 for event in History.objects.all())
    assert "break" in examples.seen


def test_reason_and_name_of_a_person_are_cut():
    task = make_task(make_queue())
    task.transition_perform("pending", actor=HUGE, reason=HUGE)
    event = History.objects.get(kind="hand")
    assert (len(event.actor), len(event.reason)) == (150, 500)
