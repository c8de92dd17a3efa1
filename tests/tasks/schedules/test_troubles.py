"""Schedules whose tick is due and has not fired."""

import re
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from tasks.models import Schedule
from tests.stator.making import ago, change
from tests.tasks.troubles import by_code, found, make_nightly

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue():
    return make_nightly()


def test_tick_that_does_not_fire(queue):
    schedule = Schedule.objects.create(name="report", queue=queue, action="mail", period=60)
    rows = Schedule.objects.filter(pk=schedule.pk)
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    rows.update(planned=Now() - timedelta(seconds=30))
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    assert found() == []
    rows.update(planned=Now() - timedelta(seconds=300))
    change(schedule, state_ready=False, state_next_attempt=ago(-5))
    trouble = by_code()["schedule_late"]
    words = r"1 schedule has not fired a tick that was due up to 5 m[ \d s]* ago: report"
    assert re.fullmatch(words, trouble.text)
    assert (trouble.level, trouble.remedies[0].pks) == ("error", (schedule.pk,))
    queue.pause(publish=True, claim=False, author="ada")
    # The cause is the pause of its queue.
    assert set(by_code()) == {"queue_paused"}
