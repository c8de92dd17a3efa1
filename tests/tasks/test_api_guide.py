"""The walk-through of the guide, command by command, against a real server."""

import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tasks.api.errors import Refused
from tasks.models import Queue, Task
from tests.tasks.serving import server, token

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "http-api.rst").read_text()

# What the answers to the commands with curl are to have, in order.
ANSWERS = [
    {"name": "encode", "lease": 60.0, "max_attempts": 5},
    {"outcome": "inserted"},
    {"lease": pytest.approx(30, abs=1)},
    {"lease": pytest.approx(30, abs=2)},
    {"task": None},
    {"error": "lease_lost"},
    {"tasks": None, "next": None},
    {"claim_paused": True, "pause_reason": "the disk is full"},
    {"claim_paused": False, "pause_reason": ""},
]


def commands():
    blocks = re.findall(r"^\.\. code-block:: shell\n\n((?:    .*\n|\n)+)", GUIDE, re.MULTILINE)
    return [line for block in blocks for line in textwrap.dedent(block).splitlines() if line]


@pytest.mark.fault
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.django_db(transaction=True)
def test_commands_of_the_walk_through_do_what_it_says(tmp_path):
    with server() as base:
        variables = {"API": base.rstrip("/"), "TOKEN": token(), "PATH": "/usr/bin:/bin:/usr/local/bin"}
        script = "\n".join(["set -e", *(f"{line}; echo" for line in commands())])
        ended = subprocess.run(
            ["bash", "-c", script],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    answers = [json.loads(line) for line in ended.stdout.splitlines() if line]
    assert len(answers) == len(ANSWERS)
    for answer, wanted in zip(answers, ANSWERS, strict=True):
        assert {name: value for name, value in answer.items() if wanted.get(name) is not None} == {
            name: value for name, value in wanted.items() if value is not None
        }
        assert set(wanted) <= set(answer)
    assert [task["id"] for task in answers[6]["tasks"]] == [Task.objects.get().pk]
    task = Task.objects.get()
    assert answers[5]["detail"].replace(f" {task.pk} ", " 1 ") in GUIDE
    assert (task.status, task.result, task.key) == ("completed", {"ok": True}, "image-7")
    assert Queue.objects.get().lease == 60


def test_every_code_is_told():
    def kinds(kind):
        return {kind, *(found for each in kind.__subclasses__() for found in kinds(each))}

    told = set(re.findall(r"^\d{3}    (.+?)  ", GUIDE, re.MULTILINE))
    told = {code for cell in told for code in re.findall(r"``(\w+)``", cell)}
    assert {kind.code for kind in kinds(Refused)} | {"lease_lost", "paused", "exists", "unknown_action"} == told
