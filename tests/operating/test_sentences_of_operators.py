"""Numbers and remedies that operators read: true, and one command for all that is meant."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.test import RequestFactory
from django.utils import timezone

from stator.admin.access import Pages
from stator.extensions.overview.problems import shown_problem
from stator.extensions.problems.survey import problems, surveys
from stator.extensions.stats.minutes import minutes_of
from stator.models import Depth, History, StatorModel, Stats
from stator.rows.meta import managed
from stator.worker import duties
from tasks.chores.retention import prune
from tasks.models import Queue, Task
from tests.commanding import line_at_a_terminal
from tests.operating.tools import overview, shell
from tests.stator.making import ago, change, operations_of, put, raw
from tests.testapp.basic import Step
from tests.testapp.operators import Letter, Parcel

pytestmark = pytest.mark.django_db

AT = timezone.now().replace(hour=10, minute=15, second=20, microsecond=0)


def hour(number, moved):
    moment = AT.replace(hour=number, minute=0, second=0)
    Stats.objects.create(model_label="testapp.parcel", hour=moment, source="a", to="b", handled=moved)


def sample(minutes_ago, moved):
    minute = AT.replace(second=0) - timedelta(minutes=minutes_ago)
    Depth.objects.create(model_label="testapp.parcel", minute=minute, queued=0, moved=moved)


@pytest.mark.parametrize(
    ("hours", "samples", "moved"),
    [({10: 666}, [(3, 149), (1, 600)], 666), ({9: 500, 10: 5}, [(70, 290), (62, 300), (1, 5)], 205), ({8: 70}, [], 0)],
)
def test_moves_of_the_last_hour_are_all_that_were_recorded(hours, samples, moved):
    for number, count in hours.items():
        hour(number, count)
    for one in samples:
        sample(*one)
    assert minutes_of("default", ["testapp.parcel"], AT)["testapp.parcel"].moved == moved


def test_one_command_retries_all_that_are_due_in_the_far_future():
    for _ in range(25):
        put(Parcel, state="stamped", state_ready=False, state_next_attempt=ago(-70 * 365 * 86400))
    put(Parcel, state="stamped", state_ready=False, state_next_attempt=ago(-3600))
    text = shell("stator", "status", "testapp.Parcel")
    assert re.search(r"25 in stamped are due in more than a year, the first on 20\d\d-\d\d-\d\d", text)
    assert "-> manage.py stator retry testapp.Parcel --far\n" in text
    assert "25 of testapp.Parcel are due now" in shell("stator", "retry", "testapp.Parcel", "--far")
    assert raw(Parcel).filter(state_ready=True).count() == 25
    far = put(Parcel, state="stamped", state_ready=False, state_next_attempt=ago(-70 * 365 * 86400))
    assert re.search(r"the next attempt is on 20\d\d-", far.explain()[0].sentence)


def test_misspelled_subcommand_is_guessed(capsys):
    told = "tasks: there is no 'queus'; did you mean 'queues'?; see tasks --help"
    assert line_at_a_terminal(capsys, "tasks", "queus") == told


def test_retention_is_logged_once_a_pass_and_stands_in_the_last_hour(caplog, monkeypatch):
    monkeypatch.setattr(duties, "DELETE", replace(duties.DELETE, limit=2))
    for _ in range(5):
        put(Step, state="done", state_ready=False, state_changed=ago(90_000))
    operations = operations_of(Step)
    with caplog.at_level("INFO", "stator.worker"):
        duties.perform(duties.DELETE, operations, stopped=lambda: False)
        duties.perform(duties.DELETE, operations, stopped=lambda: False)
    told = [(one.model, one.count) for one in caplog.records if one.message == "stator.rows_deleted"]
    assert told == [("testapp.step", 5)]
    # Another worker deletes too.
    put(Step, state="done", state_ready=False, state_changed=ago(90_000))
    duties.perform(duties.DELETE, operations_of(Step), stopped=lambda: False)
    assert "6 objects of testapp.Step deleted since " in shell("stator", "status")
    [one] = json.loads(shell("stator", "status", "--json"))["deleted"]
    assert (one["model"], one["count"], one["retention"], one["of"]) == ("testapp.step", 6, "delete_after", "done")
    assert re.search(r"deleted\s+6\s+testapp.Step\s+delete_after of done\s+since 20", overview())
    # They are no moves.
    assert Stats.get_for_model(Step).most_recent_handled() == (0, 0, 0)


def test_retention_of_tasks_and_of_our_own_tables_stands_in_the_last_hour():
    queue = Queue.objects.create(name="deliver", retention=60, actions_elsewhere=True)
    tasks = QuerySet(Task).filter(pk__in=[queue.publish("add").task.pk for _ in range(3)])
    tasks.update(state="completed", state_ready=False, state_changed=ago(90))
    prune("default")
    put(Step)
    History.objects.create(model_label="testapp.step", object_pk="1", version=1, at=ago(400 * 86400))
    duties.perform(duties.PRUNE, operations_of(Step), stopped=lambda: False)
    assert "3 objects of tasks.Task deleted since " in (text := shell("stator", "status"))
    assert ": retention of queue deliver\n" in text
    assert re.search("1 object of stator.History deleted since .*: HISTORY_RETENTION", text)


def test_each_line_of_the_overview_ends_with_a_button_or_a_remedy():
    # No worker, an object that fails, and one in a state that nobody knows.
    put(Letter)
    put(Parcel, state_failures=2, state_ready=False, state_next_attempt=ago(-600), state_changed=ago(90_000))
    change(put(Parcel, state_ready=False), state="mislaid")
    user = User.objects.create_superuser("ada", password="secret")
    request = RequestFactory().get("/")
    request.user = user
    pages = Pages(admin.site, request)
    found = problems(surveys(managed(StatorModel.subclasses)))
    assert {one.code for one in found} >= {"no_worker", "failing", "unknown_state"}
    for one in found:
        shown = shown_problem(one, pages)
        if not (shown["retry"] or any(each["action"] for each in shown["actions"])):
            assert one.remedy.lower().rstrip(".") in str(shown["text"]).lower()


def test_manual_action_stands_in_the_last_hour():
    row = put(Letter)
    shell("stator", "retry", "testapp.Letter", str(row.pk))
    assert re.search(r"retry\s+1\s+testapp.Letter\s.* ago", overview())
