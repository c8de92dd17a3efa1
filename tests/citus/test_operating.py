"""Tables over the nodes: what operators see and do, what waits for other objects, and the pages of the admin."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from stator.extensions.problems.reasons import explain_counts
from stator.models import History, Report
from stator.rows.actions import recent_actions
from stator.rows.lookups import try_lookups
from stator.runner import StatorRunner
from stator.undo import undo
from tests.citus.conftest import ALIAS, NAME, MakeDatabase, over_the_nodes
from tests.processes import WorkerProcess, wait_until
from tests.sizes import size
from tests.testapp.spreading import Folder, Note, Sheet

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]


class Router:
    """All models are on the cluster."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return ALIAS

    db_for_write = db_for_read


@pytest.fixture(autouse=True)
def site(make_database: MakeDatabase, settings: Any) -> Iterator[None]:
    """A site whose tables of sheets, folders and notes are over the nodes."""
    over_the_nodes(make_database, Sheet="shard", Folder="shard", Note="shard")
    settings.DATABASE_ROUTERS = [Router()]
    yield
    settings.DATABASE_ROUTERS = []


def notes(**values: Any) -> list[Any]:
    return Note.objects.bulk_create([Note(**values, shard=3 * number) for number in range(10)])


def run(model: Any, times: int = 1) -> dict[str, int]:
    """Run a worker on a model; return how many of its objects are in each state."""
    for _ in range(times):
        StatorRunner([model]).run_single_cycle()
    return {state: count for state, count in model.stator.counts().items() if count}


def test_reasons_are_counted_and_agree_with_those_of_each_object() -> None:
    sheets = Sheet.objects.bulk_create([Sheet() for _ in range(2)])
    notes(), notes(text="fail"), notes(text="wait"), notes(sheet=sheets[0])
    assert run(Note) == {"new": 30, "done": 10}
    Note.stator.pause(where={"text": "fail", "id": 0}, actor="ops")
    Note.stator.pause(where={"text": "nothing"}, actor="ops")
    Report.objects.filter(message="the ink dries").order_by("pk")[:1].get().delete()
    expected = {"terminal": 10, "backoff": 10, "last_said": 9, "not_due": 1, "waits_for": 10}
    assert Note.stator.explain_counts() == expected
    assert explain_counts(Note.objects.filter(text="wait")) == {"last_said": 9, "not_due": 1}
    said = [note.explain()[0].code for note in Note.objects.all()]
    assert {code: said.count(code) for code in said} == expected
    assert Note.stator.with_report(error="ValueError").count() == 10
    Note.stator.pause(where={"text": "fail"}, actor="ops")
    assert Note.stator.explain_counts()["paused"] == 10
    assert Note.objects.filter(text="fail")[0].explain()[0].code == "paused"
    with pytest.raises(ValueError, match="may be on other nodes"):
        try_lookups(Note, "default", {"folder__state": "filling"})


def test_objects_wait_for_objects_on_other_nodes() -> None:
    sheet, other = Sheet.objects.bulk_create([Sheet(), Sheet()])
    [folder, early] = Folder.objects.bulk_create([Folder(), Folder()])
    notes(sheet=sheet, folder=folder), notes(sheet=other, folder=early), notes(folder=early)
    assert run(Note, 2) == {"new": 20, "done": 10}
    sheet.transition_perform("done")
    assert run(Note, 2) == {"new": 10, "done": 20}
    assert Folder.stator.get(pk=folder.pk).state == "full"
    assert early.explain()[0].code == "awaits_related"
    # Nobody tells them that it is gone: a chore finds out.
    Sheet.objects.filter(pk=other.pk)._raw_delete(ALIAS)
    assert run(Note, 2) == {"done": 30}
    assert run(Folder) == {"full": 2}


def test_conditions_are_met_by_a_chore_too() -> None:
    folders = Folder.objects.bulk_create([Folder() for _ in range(3)])
    for folder, state in zip(folders, ("done", "new", "done"), strict=True):
        Note.objects.bulk_create([Note(folder=folder, state=state) for _ in range(3)])
    assert run(Folder) == {"filling": 1, "full": 2}
    assert folders[1].stator.send("close", by="ina").outcome == "moved"


def test_actions_are_undone() -> None:
    notes(text="fail"), notes(text="wait")
    run(Note)
    before = list(Note.objects.order_by("pk").values_list("pk", "state", "state_next_attempt", "state_failures"))
    assert Note.stator.retry(actor="ina") == 20
    [action] = recent_actions(ALIAS)
    assert undo(action.pk, ALIAS, actor="ina", reason="too early").count == 20
    after = Note.objects.order_by("pk").values_list("pk", "state", "state_next_attempt", "state_failures")
    assert list(after) == before
    assert Note.stator.filter(text="fail").move("done", actor="ina") == 10
    action = recent_actions(ALIAS)[0]
    assert undo(action.pk, ALIAS, actor="ina", reason="a mistake").count == 10
    assert run(Note) == {"new": 20}


def test_pages_of_the_admin_and_commands_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = Sheet.objects.create()
    notes(text="fail"), notes(text="wait", sheet=sheet)
    run(Note)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = "/admin/testapp/note/"
    for condition in ("", "ready", "leased", "failing", "quarantined", "stuck", "overdue", "unknown"):
        assert client.get(page, {"condition": condition}).status_code == 200
    error = Report.objects.exclude(error="").first()
    assert error
    found = client.get(page, {"error": error.fingerprint}).content.decode()
    assert "10 notes" in found
    one = Note.objects.filter(text="wait")[0]
    assert str(sheet.pk) in client.get(f"{page}{one.pk}/change/").content.decode()
    for action in ("stator_retry", "stator_unlock"):
        for across in ("0", "1"):
            chosen = {"action": action, "_selected_action": [str(one.pk)], "select_across": across}
            assert client.post(page, chosen).status_code in (200, 302)
    assert client.get("/admin/stator/overview/").status_code == 200
    call_command("stator", "status", "--database", ALIAS)
    assert "testapp.Note" in capsys.readouterr().out


@pytest.mark.fault
def test_no_object_is_lost_or_moved_twice_when_workers_are_killed() -> None:
    count = size(5000, 1000)
    Sheet.objects.bulk_create([Sheet() for _ in range(count)], batch_size=1000)
    done = Sheet.stator.filter(state="done")
    lease = {"STATOR_LEASE": "3", "STATOR_REAP_INTERVAL": "1", "TEST_DATABASE_DEFAULT": NAME}
    times = size(10, 2)
    with WorkerProcess("testapp.Sheet", "--run-for", "600", **lease) as other:
        for aim in [count * part // (times + 1) for part in range(1, times + 1)]:
            with WorkerProcess("testapp.Sheet", "--run-for", "600", **lease) as worker:
                wait_until(lambda aim=aim: done.count() >= aim, message=worker.output)
                worker.kill()
        wait_until(lambda: done.count() == count, message=other.output)
    moved = Counter(History.objects.filter(to="done").values_list("object_pk", flat=True))
    assert len(moved) == count
    assert set(moved.values()) == {1}
