"""Pages, commands and the queue where nobody keeps reports and a history: they leave out what is not known."""

import pytest

from stator.admin import timeline
from stator.extensions.problems import kinds
from stator.extensions.reports.problems import LAST_SAID
from tasks.dead_letters import letter_of
from tasks.extensions.schedules.ticking import count_failure
from tasks.extensions.throttles.put_off import put_off
from tasks.models import Schedule
from tasks.queue.latest_errors import errors_of
from tests.situations import crew
from tests.stator.commands.errands import LABEL, asked
from tests.stator.extensions.unread import nobody_reads
from tests.stator.making import ago, put
from tests.stator.overviews import PARCELS, failing, retry, text_of, worker
from tests.tasks.making import make_queue, make_task
from tests.tasks.serving import token
from tests.testapp.approvals import Expense
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nobody_keeps_any(monkeypatch):
    nobody_reads(monkeypatch)
    monkeypatch.setattr(timeline, "_further", [])
    monkeypatch.setattr(kinds, "KINDS", [kind for kind in kinds.KINDS if kind is not LAST_SAID])


def test_overview_and_lists_show_objects_without_their_errors(admin_client):
    worker()
    parcel = failing(message="connection refused")
    for url in (None, PARCELS):
        text = text_of(admin_client, *[url] * bool(url))
        assert "not everything is shown" not in text
        assert "connection refused" not in text
    assert retry(admin_client).status_code == 302
    parcels = "/admin/testapp/parcel/"
    assert f"{parcels}{parcel.pk}/change/" in admin_client.get(parcels).text
    assert f"{parcels}{parcel.pk}/change/" not in admin_client.get(f"{parcels}?error=aa").text
    page = admin_client.get(f"{parcels}{parcel.pk}/change/").text
    assert "No event is recorded yet." in page


def test_status_explain_and_retry_say_what_is_known():
    crew()
    rows = [
        put(Errand, state_ready=False, state_failures=2, state_next_attempt=ago(-500)),
        put(Errand, state_crashes=9, state_ready=False),
    ]
    assert [row.explain()[0].code for row in rows] == ["backoff", "quarantined"]
    (figures,) = asked("status", LABEL)["models"]
    assert (figures["failing"], figures["stays"]) == (1, [])
    assert asked("retry", LABEL, "--error", "aa")["retried"] == 0


def test_tasks_have_their_runs_alone():
    queue = make_queue("mail")
    task = make_task(queue, "errored")
    assert errors_of([task.pk], "default")[task.pk].line == "tasks.Failed: no such image"
    assert put_off("default") == []
    assert letter_of(task).workers == ["maker"]
    schedule = Schedule.objects.create(name="daily", queue=queue, action="report", period=60)
    count_failure(schedule)
    schedule.refresh_from_db()
    assert schedule.last_error == "no error is recorded"
    assert letter_of(schedule).workers == []


def test_objects_over_http_have_no_history(client):
    expense = put(Expense)
    given = token(verbs=(), managed_objects={"testapp.expense": []})
    headers = {"Authorization": f"Bearer {given}"}
    found = client.get(f"/api/objects/testapp.Expense/{expense.pk}", headers=headers).json()
    assert (found["error"], found["history"]) == (None, [])
