"""The loop of the client, against a server that answers by a script."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasks.client import Client
from tasks.client import __file__ as installed
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.tasks.client.test_client import DROPPED, answers, claimed, server

__all__ = ["server"]

HELD = (200, {"lease": 30, "heartbeat_interval": 5, "max_unexpected_retries": None, "unexpected_errors": 1})
ENDED = (200, {"task": {}})


@pytest.fixture
def client(server):
    yield Client(server.url, "tk_secret", timeout=PATIENCE, retries=0)
    names = [thread.name for thread in threading.enumerate()]
    assert "heartbeats of a consumer" not in names


def claims(*pks, lease=30.0):
    return 200, {"claims": [claimed(pk, lease, f"t{pk}") for pk in pks], "waited": 0.0}


def asked(server, after=0):
    """Return the requests: the end of each path, and the body without the token."""
    calls = [(path.removeprefix("/api/"), dict(body)) for _, path, body, _ in server.asked[after:]]
    return [(path, {name: value for name, value in body.items() if name != "token"}) for path, body in calls]


def test_claims_of_a_batch_are_ended_one_after_the_other(client, server):
    answers(server, claims(1, 2, 3), ENDED)
    loop = client.consume("encode", worker="bot-1", limit=3, lease=30, wait=2)
    for claim in loop:
        if claim.task["id"] == 1:
            claim.resolve({"ok": True})
        else:
            loop.stop()
    assert asked(server) == [
        ("queues/encode/claims", {"worker": "bot-1", "wait": 2, "limit": 3, "lease": 30}),
        ("tasks/1/claim/resolve", {"result": {"ok": True}}),
        ("tasks/2/claim/resolve", {}),
        ("tasks/3/claim/release", {"begun": False}),
    ]


def test_function_that_raises_fails_its_task_with_the_end_of_the_traceback(client, server):
    spent = (200, {**HELD[1], "unexpected_errors": 2})
    answers(server, claims(1), HELD, spent, ENDED, claims(2), ENDED)
    loop, made = client.consume("encode", worker="bot-1", local_retries=1, local_delay=0.01), []

    def work(claim):
        made.append(claim.task["id"])
        if claim.task["id"] == 1:
            raise RuntimeError("x" * 9000 + " no such image")
        loop.stop()
        return {"ok": True}

    loop.run(work)
    assert made == [1, 1, 2]
    *noted, failed, _, resolved = asked(server, 1)
    assert noted == [("tasks/1/claim/heartbeat", {"unexpected": True})] * 2
    assert failed[0] == "tasks/1/claim/fail"
    assert len(failed[1]["error"]) == 8000
    assert failed[1]["error"].endswith("no such image\n")
    assert resolved == ("tasks/2/claim/resolve", {"result": {"ok": True}})


def test_number_of_retries_and_interval_are_the_latest_that_the_server_said(client, server):
    latest = (200, {**HELD[1], "max_unexpected_retries": 1})
    answers(server, claims(1), latest, latest, ENDED, claims(2), ENDED)
    loop, intervals = client.consume("encode", worker="bot-1", local_retries=100, local_delay=0.01), []

    def work(claim):
        if claim.task["id"] == 2:
            return loop.stop()
        intervals.append(round(claim.heartbeat_due - claim._since, 3))
        raise RuntimeError("no")

    loop.run(work)
    # The second error is counted here too, if the server has not.
    assert intervals == [10.0, 5.0]
    assert [path for path, _ in asked(server)][3] == "tasks/1/claim/fail"


@pytest.mark.parametrize(
    "away",
    [
        DROPPED,
        (503, {"error": "unavailable", "detail": "the database is away"}),
        (502, b"<html>bad gateway</html>"),
        (429, {"error": "rate_limited", "detail": "later"}, {"Retry-After": "0"}),
    ],
    ids=["dropped", "unavailable", "gateway", "limited"],
)
def test_loop_outlasts_an_outage(client, server, away):
    answers(server, away, away, claims(1), ENDED)
    loop = client.consume("encode", worker="bot-1")
    for _ in loop:
        loop.stop()
    assert [path for path, _ in asked(server)] == [*["queues/encode/claims"] * 3, "tasks/1/claim/resolve"]


def test_server_that_does_not_wait_is_not_asked_all_the_time(client, server):
    answers(server, claims())
    loop = client.consume("encode", worker="bot-1", wait=1)
    timer = threading.Timer(1.0, loop.stop)
    timer.start()
    assert list(loop) == []
    timer.join()
    assert 1 <= len(server.asked) <= 4


def test_heartbeats_keep_the_lease_that_was_asked_for_last(client, server):
    answers(server, claims(1, lease=3.0), (200, {**HELD[1], "lease": 3.0}))
    loop = client.consume("encode", worker="bot-1", lease=3.0)
    for claim in loop:
        claim.heartbeat(5.0)
        wait_until(lambda: len(server.asked) >= 4)
        loop.stop()
    beats = [body for path, body in asked(server) if path == "tasks/1/claim/heartbeat"]
    assert [body["lease"] for body in beats if body][-2:] == [5.0, 5.0]


PROGRAM = """
import json, sys
from my_client import Client
loop = Client(sys.argv[1], "tk_secret").consume("encode", worker="bot-1")
for claim in loop:
    loop.stop()
    print(json.dumps(claim.task))
assert not [name for name in sys.modules if name.partition(".")[0] in ("django", "stator", "tasks")]
"""


def test_copy_of_the_folder_works_under_another_name(server, tmp_path):
    shutil.copytree(Path(installed).parent, tmp_path / "my_client", ignore=shutil.ignore_patterns("__pycache__"))
    answers(server, claims(7), ENDED)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    answer = subprocess.run([sys.executable, "-I", "-c", code, server.url], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == claimed(7)["task"]
