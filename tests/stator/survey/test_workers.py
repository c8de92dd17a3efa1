"""The worker processes, and the objects that each runs now."""

import re

import pytest

from stator.db.interface import new_token
from stator.models import Worker
from stator.querysets import OperatorQuerySet
from stator.survey.depths import depths
from stator.survey.looks import Looks
from stator.survey.numbers import NAMED
from stator.survey.workers import workers_holding
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db

ALIVE, GONE, STOPPED = "a" * 12, "b" * 12, "c" * 12


def register(pk, **values):
    given = {"host": "oak", "pid": 7, "version": "1", "models": ["testapp.errand"], "database": "default"}
    Worker.objects.create(id=pk, **given)
    raw(Worker).filter(pk=pk).update(**values)


def hold(worker, seconds=5):
    claim = {"state_claim": new_token(worker), "state_locked_until": ago(-60), "state_attempted": ago(seconds)}
    return put(Errand, state_ready=False, **claim)


def found():
    held = depths(OperatorQuerySet(Errand, using="default")).held
    with Looks("default") as looks:
        return workers_holding("default", (("testapp.errand", one) for one in held), looks)


@pytest.fixture
def workers():
    register(ALIVE, started=ago(100))
    register(GONE, started=ago(900), heartbeat=ago(600))
    register(STOPPED, started=ago(900), stopped=ago(300))


def test_live_workers_are_counted_for_each_model_that_they_serve(workers):
    assert (found().crew("testapp.errand").live, found().crew("testapp.other").live) == (1, 0)


def test_each_worker_has_what_it_runs_the_longest_first(workers):
    seconds = [5, 50, 500, 1, 10]
    errands = {second: hold(ALIVE, second).pk for second in seconds}
    (process,) = [process for process in found().processes if process.worker.pk == ALIVE]
    assert [one.pk for _, one in process.shown] == [errands[second] for second in sorted(seconds)[: -NAMED - 1 : -1]]
    assert len(process.runs) == len(seconds)


def test_silent_worker_that_holds_objects_is_missed_and_shown_first(workers):
    assert found().missed == []
    hold(GONE)
    (missed,) = found().missed
    assert found().shown[0].worker.pk == missed.worker.pk == GONE
    assert re.fullmatch(r"silent for 1\d m[ \d s]*, holds 1", missed.status_text)


def test_dead_worker_was_up_until_its_last_heartbeat_and_a_stopped_one_until_it_stopped(workers):
    since = {process.worker.pk: process.since for process in found().processes}
    assert since[ALIVE] >= 100
    assert since[GONE] == pytest.approx(300, abs=100)
    assert since[STOPPED] == pytest.approx(600, abs=100)
