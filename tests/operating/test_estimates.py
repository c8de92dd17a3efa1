"""A backlog says when it is done: the same end on every page and in every command, and none that nobody knows."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from stator.extensions.stats.readings import paces
from stator.models import Depth, Stats, Worker
from stator.survey.estimates import estimate, pace_text
from tasks.models import Queue
from tests.operating.tools import overview, shell
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
DAY = 86400


def sample():
    """720 errands moved in three minutes; both samples are of one moment, for a minute may end between two."""
    minute = timezone.now().replace(second=0, microsecond=0)
    for minutes_ago, moved in [(4, 100), (1, 820)]:
        at = minute - timedelta(minutes=minutes_ago)
        Depth.objects.create(model_label="testapp.errand", minute=at, queued=0, moved=moved)


@pytest.fixture
def steady(monkeypatch):
    """Samples of one hour, whatever the minute at which the test runs."""
    now = timezone.now().replace(minute=30, second=20)
    monkeypatch.setattr("stator.extensions.stats.readings.hour_of", lambda minute: now)


@pytest.mark.parametrize(
    ("count", "moves", "limit", "told"),
    [
        (10_000, 4.0, None, "at 4/s: done at 12:41"), (10_000, None, 4.0, "at 4/s: done at 12:41"),
        (10_000, 4.0, 100.0, "at 4/s: done at 12:41"), (10_000, 50.0, 4.0, "at 4/s: done at 12:41"),
        (50, 0.0, 1 / 1000, "at 3.6/h: done on 2026-11-29 at 01:53"), (50, 0.0, 4.0, None), (50, None, None, None),
        (0, 4.0, 4.0, None), (90, None, 1 / DAY, "at 1/d: done on 2027-02-26"),
    ],
)  # fmt: skip
def test_end_is_by_the_smaller_of_limit_and_moves(count, moves, limit, told):
    with timezone.override(UTC):
        found = estimate(count, NOON, moves=moves, limit=limit)
        assert (str(found) if found else None) == told


def test_end_of_more_than_is_counted_is_later():
    with timezone.override(UTC):
        assert str(estimate(10_000, NOON, moves=4.0, more=True)) == "at 4/s: done after 12:41"


@pytest.mark.parametrize(
    ("pace", "text"), [(1234.4, "1,234/s"), (1.25, "1.2/s"), (0.5, "30/m"), (1 / 90_000, "0.96/d")]
)
def test_pace_is_in_a_unit_that_people_count_in(pace, text):
    assert pace_text(pace) == text


def test_moves_are_counted_between_samples_of_the_same_hour(steady):
    sample()
    assert paces("default", ["testapp.errand"])["testapp.errand"].total == 4.0
    assert paces("default", ["testapp.parcel"]) == {}


@pytest.fixture
def behind(steady):
    """200 errands wait, at 4 a second; a worker serves them."""
    Worker.objects.create(id="b" * 12, host="oak", pid=7, version="1", models=["testapp.errand"], database="default")
    raw(Worker).update(started=ago(900))
    for number in range(20):
        put(Errand, tenant=number, state_changed=ago(200 - number))
    sample()
    Stats.objects.create(model_label="testapp.errand", hour=timezone.now(), source="new", to="done", handled=3)
    return raw(Errand).order_by("-pk").first()


def test_lines_about_a_backlog_say_when_it_is_done(behind):
    told = r"20 wait in new at 4/s: done (on \S+ )?at \d\d:\d\d; the first has waited 3 m"
    assert re.search(told, shell("stator", "status", "testapp.Errand"))
    assert re.search(told, overview())
    reason = behind.explain()[0]
    assert re.search(r"Ready, with 19 objects before it; at 4/s it is done (on \S+ )?at \d\d:\d\d\.", reason.sentence)
    assert reason.numbers["done_in"] == 5.0
    assert json.dumps(reason.numbers)


def test_nothing_is_foretold_without_a_worker(behind):
    raw(Worker).update(heartbeat=ago(300))
    assert "done at" not in shell("stator", "status") + overview()
    assert "done" not in behind.explain()[0].sentence


@pytest.fixture
def queue():
    """600 tasks ended in the last five minutes, and 40 wait."""
    queue = Queue.objects.create(name="encode", actions_elsewhere=True)
    queue.publish_many([{"action": "resize"} for _ in range(640)])
    ended = list(queue.tasks.order_by("pk").values_list("pk", flat=True)[:600])
    raw(queue.tasks.model).update(state_changed=ago(400))
    raw(queue.tasks.model).filter(pk__in=ended).update(state="completed", state_ready=False, state_changed=ago(100))
    return queue


def test_queues_say_when_they_are_done(queue, admin_client):
    [told] = json.loads(shell("tasks", "queues", "--json"))
    assert told["done_in"] == 20.0
    assert re.fullmatch(r"(on \S+ )?at \d\d:\d\d \(2/s\)", told["done"])
    pages = ("tasks/queue/", f"tasks/queue/{queue.pk}/change/", "stator/overview/")
    for text in (shell("tasks", "queues"), *(admin_client.get(f"/admin/{page}").text for page in pages)):
        assert "(2/s)" in text
    queue.pause(publish=False, claim=True)
    assert "(2/s)" not in shell("tasks", "queues") + admin_client.get("/admin/stator/overview/").text


def test_pace_of_a_busy_queue_is_that_of_its_latest_tasks(queue, monkeypatch):
    monkeypatch.setattr("tasks.queue.figures.MAX_ENDED", 500)
    monkeypatch.setattr("tasks.queue.paces.MAX_ENDED", 500)
    [told] = json.loads(shell("tasks", "queues", "--json"))
    # 500 in the 100 seconds since they ended, and in those that this test takes.
    assert re.search(r"\((5|4\.\d)/s\)$", told["done"])
