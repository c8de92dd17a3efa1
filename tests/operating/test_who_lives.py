"""No two sentences about workers contradict each other, whatever the workers are."""

import json
import os
import socket
import subprocess
import sys

import pytest

from stator.db.interface import new_token, new_worker_id
from stator.extensions.fleet.presence import Presence
from stator.models import Worker
from stator.survey.crew import Crew, served_for
from tests.operating.tools import overview, shell
from tests.stator.making import ago, operations_of, put, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db

# What a worker is: when it started, was heard of last and ended, each that many seconds ago; and whether it serves.
KINDS = {
    "live": (900, 2, None, True),
    "hung": (900, 200, None, False),
    "exited": (900, 100, 100, False),
    "just started": (5, 1, None, True),
}
# Nobody, some alone, and one that serves beside one that does not.
CREWS = [(), ("live",), ("hung",), ("just started",), ("live", "hung"), ("just started", "exited")]


def register(kind, held):
    started, heard, ended, _ = KINDS[kind]
    pk = new_worker_id()
    Worker.objects.create(
        id=pk, host="oak", pid=7 + Worker.objects.count(), version="1", models=["testapp.errand"], database="default"
    )
    stopped = None if ended is None else ago(ended)
    raw(Worker).filter(pk=pk).update(started=ago(started), heartbeat=ago(heard), stopped=stopped)
    if held:
        # Held since before the worker fell silent; the lease is over.
        put(
            Errand, state_ready=False, state_claim=new_token(pk), state_attempted=ago(heard + 1),
            state_locked_until=ago(heard - 60),
        )  # fmt: skip


@pytest.fixture
def waiting():
    """An object that has been due for ten minutes."""
    return put(Errand, state_changed=ago(600))


@pytest.mark.parametrize("crew", CREWS, ids=lambda crew: "+".join(crew) or "nobody")
def test_sentences_agree(waiting, crew):
    for kind in crew:
        register(kind, held=True)
    serving = [kind for kind in crew if KINDS[kind][3]]
    settled, lost = "live" in crew, {"hung", "exited"} & {*crew}
    # What was due before a worker was there has waited for that worker.
    told = {one["code"]: one for one in json.loads(shell("stator", "status", "testapp.Errand", "--json"))["troubles"]}
    texts = {
        "status": shell("stator", "status", "testapp.Errand"), "doctor": shell("stator", "doctor"),
        "explain": shell("stator", "explain", "testapp.Errand", str(waiting.pk)), "overview": overview(),
    }  # fmt: skip

    assert ("no_worker" in told) == (not serving)
    assert ("slow" in told) == settled
    assert ("silent_worker" in told) == bool(lost)
    if lost:
        sentence = told["silent_worker"]["sentence"]
        assert ("live workers take over" in sentence) == bool(serving)
        assert ("nobody takes over" in sentence) == (not serving)
        assert ("runstator" in told["silent_worker"]["command"]) == (not serving)
    many = len(serving)
    lines = texts["status"].splitlines()
    words = f"{many} live worker{'s' if many > 1 else ''}, " if many else "No live worker; start runstator."
    assert any(line.startswith(words) for line in lines)
    assert ("ok    default  served" in texts["doctor"]) == bool(serving)
    assert ("every model has a live worker" in texts["doctor"]) is False
    assert ("No live worker serves testapp.Errand" in texts["explain"]) == (not serving)
    if not serving:
        assert "live workers take over" not in " ".join(texts.values())
        assert "marked ready within" not in texts["explain"]
        assert "have not taken" not in " ".join(texts.values())
        assert "has not taken" not in " ".join(texts.values())
    assert f"{many} alive" in texts["overview"]


def test_row_of_a_model_that_nobody_serves_is_not_green(waiting, admin_client):
    put(Errand)
    page = admin_client.get("/admin/stator/overview/").text
    [row] = [part for part in page.split("<tr>") if "?model=testapp.Errand" in part]
    assert "stator-dot stator-error" in row


@pytest.mark.parametrize(
    ("lives", "served"),
    [
        ([], 0), ([(100, 0), (500, 105)], 500), ([(5, 0), (500, 105)], 5), ([(5, 0), (40, 6), (90, 38)], 90),
    ],
)  # fmt: skip
def test_service_without_a_gap(lives, served):
    assert served_for(lives) == served


def test_fault_of_workers_is_no_longer_than_they_serve():
    assert Crew(1, 20.0).fault(500.0) == 20.0
    assert Crew(1, 900.0).fault(500.0) == 500.0
    assert Crew().fault(None) == 0.0
    assert not Crew(known=False).is_missing


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("replaced", [False, True])
def test_process_of_this_host_that_is_gone_has_ended(replaced):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host, heard = socket.gethostname()[:255], ago(1) if replaced else ago(60)
    given = {"host": host, "version": "1", "models": ["testapp.errand"], "database": "default"}
    for pk, pid in (("a" * 12, gone.pid), ("b" * 12, os.getppid())):
        Worker.objects.create(id=pk, pid=pid, **given)
    raw(Worker).update(heartbeat=heard)
    presence = Presence(new_worker_id(), [operations_of(Errand)], dict, replaces=gone.pid if replaced else 0)
    presence.show()
    ended = dict(Worker.objects.values_list("pk", "stopped"))
    assert ended["a" * 12] is not None
    assert ended["b" * 12] is None
    # One that was taken for ended, and lives, says so.
    raw(Worker).update(stopped=ago(1))
    presence._shown -= 11
    presence.show()
    assert Worker.objects.get(pk=presence._id).stopped is None
