"""The twelve situations of ``tests/situations.py`` at a shell: each is found by one command and mended by a second."""

import json
import shlex
from typing import Any

import pytest

from tests.commanding import shell
from tests.situations import Situation, fill, inject

pytestmark = pytest.mark.django_db(transaction=True)

# What a command leaves to its user.
CHOICES = {"testapp.Build": "built", "testapp.Parcel": "returned"}

STATUS, DOCTOR = ("stator", "status"), ("stator", "doctor", "--database", "default")


def troubles() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(shell(*STATUS, "--json"))["troubles"]
    return found


def told_in(printed: str, situation: Situation) -> str:
    """The command that is printed below the sentence about it."""
    lines = printed.splitlines()
    told = [number for number, line in enumerate(lines) if situation.is_told_by(line)]
    assert len(told) == 1, f"{situation.name}: {situation.words}\n{printed}"
    return f"manage.py {lines[told[0] + 1].rpartition('manage.py ')[2].rstrip(')')}"


@pytest.mark.needs("reports", "tasks_commands")
def test_each_is_told_once_and_mended_by_the_command_that_is_told() -> None:
    fill()
    situations = inject()
    assert sorted(one["code"] for one in troubles()) == sorted(situation.code for situation in situations)
    status, doctor = shell(*STATUS), shell(*DOCTOR)
    for printed in (status, doctor):
        assert "No problems" not in printed
        assert "no object is stuck" not in printed
    for situation in situations:
        assert not situation.mended(), situation.name
        command = told_in(status, situation)
        # Of unknown states it has a check of its own.
        assert situation.code == "unknown_state" or command == told_in(doctor, situation)
        _, *arguments = shlex.split(command)
        named = {"STATE": CHOICES.get(arguments[2], ""), "WHY": "on call", "ACTION": "echo"}
        shell(*(named.get(one, one) for one in arguments))
        assert situation.mended(), f"{situation.name}: {command}"
    # No worker runs, so what was mended waits for one, and the schedule as well.
    assert {one["code"] for one in troubles()} <= {"slow", "schedule_late"}
