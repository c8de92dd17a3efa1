"""Pages and commands where nobody has stored statistics: they leave out what is not known."""

import pytest

from stator.models import Depth, Stats
from stator.rows import deletions
from stator.rows.deletions import Retention, note_deleted
from tasks.admin.queue_flow import flow_of
from tests.situations import crew
from tests.stator.commands.errands import LABEL, asked
from tests.stator.extensions.unread import nobody_reads
from tests.stator.making import ago, put
from tests.stator.overviews import PARCELS, text_of, worker
from tests.tasks.making import make_queue
from tests.testapp.explained import Errand
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nobody_counts(monkeypatch):
    nobody_reads(monkeypatch)
    monkeypatch.setattr(deletions, "COUNTED_BY", [])
    minute = ago(0).replace(second=0, microsecond=0)
    for label in ("testapp.parcel", "testapp.errand"):
        Depth.objects.create(model_label=label, minute=minute, queued=77, moved=88)
        Stats.add("default", label, "packed", "stamped", shard=1, handled=99)


def test_overview_shows_objects_and_their_graph(admin_client):
    worker()
    put(Parcel)
    text = text_of(admin_client)
    assert "No problems" in text
    assert "no samples" in text
    of_model = text_of(admin_client, PARCELS)
    assert "Graph" in of_model
    assert "not everything is shown" not in of_model
    assert "Attempts handled" not in of_model


def test_status_and_explain_say_what_is_known():
    crew()
    put(Errand)
    last = put(Errand)
    (figures,) = asked("status", LABEL)["models"]
    assert (figures["ready"], figures["time_in_state"]) == (2, [])
    assert "done" not in str(last.explain()[0])


def test_queue_is_charted_by_its_tasks_alone():
    found = flow_of(make_queue("mail"), "day")
    assert not [chart for chart in (found.ended, found.open, found.waiting) if chart and chart.most]


def test_deletions_are_logged(caplog):
    caplog.set_level("INFO", "stator.worker")
    note_deleted("default", "testapp.errand", {Retention("delete_after", "done"): 3})
    assert [record.count for record in caplog.records if record.message == "stator.rows_deleted"] == [3]
    assert not Stats.objects.filter(model_label__startswith="deleted").exists()
