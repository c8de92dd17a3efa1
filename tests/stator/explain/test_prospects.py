"""The prospects of objects that were just made due: whether a worker will attempt them, and if not, why."""

import pytest

from stator.extensions.problems.reasons import prospects
from stator.models import Pause, Worker
from stator.rows import due_times
from stator.rows.due_times import looked_at
from tests.stator.making import put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db


@pytest.fixture
def crew():
    """A live worker that serves the models."""
    models = ["testapp.errand", "testapp.rollout", "testapp.build"]
    return Worker.objects.create(id="a" * 12, host="oak", pid=1, version="1", models=models, database="default")


def said(model, count):
    return prospects(model.stator.all(), looked_at(model.stator.all()), count)


def test_nothing_is_said_of_objects_that_are_attempted_in_their_turn(crew):
    for _ in range(2):
        put(Errand)
    assert said(Errand, 2) == ""


def test_no_worker_pause_and_dependency_are_said(crew):
    for _ in range(2):
        put(Errand)
    Worker.objects.update(models=[])
    assert said(Errand, 2) == "2 are not attempted yet: 2 without a live worker."
    Pause.objects.create(model_label="testapp.errand", reason="disk is full", actor="anna")
    assert said(Errand, 2) == "2 are not attempted yet: 2 paused."


def test_only_some_of_many_are_looked_at(crew, monkeypatch):
    monkeypatch.setattr(due_times, "LOOKED_AT", 2)
    for _ in range(3):
        put(Errand)
    Worker.objects.update(models=[])
    assert said(Errand, 3) == "2 of the 2 objects looked at are not attempted yet: 2 without a live worker."
