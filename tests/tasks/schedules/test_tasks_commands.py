"""``manage.py tasks schedules``."""

from functools import partial

import pytest

from stator.testing import drain
from tasks.models import Schedule
from tests import commanding
from tests.stator.making import row
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)

run, asked = (partial(call, "tasks") for call in (commanding.run, commanding.asked))


@pytest.fixture
def schedules():
    given = {"queue": make_queue(), "action": "resize", "period": 3600.0}
    found = [Schedule.objects.create(name=name, **given) for name in ("hourly", "nightly")]
    drain(Schedule)
    return found


def test_lists_when_each_fires(schedules):
    text = run("schedules")
    assert text.startswith("schedule  timetable     next")
    assert "hourly    every 3600 s  in 59 m" in text
    [one] = asked("schedules", "nightly")
    assert (one["name"], one["enabled"], one["planned"] is None) == ("nightly", True, False)


def test_pauses_resumes_and_runs_those_that_are_named(schedules):
    one, other = schedules
    assert run("schedules", "hourly", "--pause").startswith("1 schedule paused.")
    assert (row(one).enabled, row(other).enabled) == (False, True)
    assert run("schedules", "hourly", "--run").startswith("0 schedules will fire now.")
    assert run("schedules", "hourly", "--resume").startswith("1 schedule resumed.")
    assert run("schedules", "hourly", "--run").startswith("1 schedule will fire now.")
    assert (row(one).asked, row(other).asked) == (True, False)
    assert run("schedules", "hourly", "--action", "fetch").startswith("1 schedule changed.")
    assert (row(one).action, row(other).action) == ("fetch", "resize")


def test_changes_all_that_are_named_however_many(schedules, monkeypatch):
    monkeypatch.setattr("tasks.extensions.schedules.tasks_commands.MAX_SCHEDULES", 1)
    assert run("schedules", "hourly", "nightly", "--action", "fetch").startswith("2 schedules changed.")
    assert {row(one).action for one in schedules} == {"fetch"}
