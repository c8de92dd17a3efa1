"""Objects that wait for each other: wrong at once, one line for the circle, and a command that ends it."""

import json
import shlex

import pytest

from stator.explain.circles import circle_through
from stator.rows import columns
from tests.operating.tools import overview, shell
from tests.stator.making import change, put, row
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db


def parked(**fields):
    rollout = put(Rollout, state="started", state_ready=False, **fields)
    change(rollout, **columns.parking())
    return rollout


@pytest.fixture
def circle():
    """Three rollouts of which each waits for the next, and a fourth that waits for one of them."""
    first = parked(name="first")
    third = parked(name="third", after=first)
    second = parked(name="second", after=third)
    change(first, after=second)
    return first, second, third, parked(name="outside", after=first)


def test_circle_is_told_at_once_and_ended_by_the_command(circle):
    first, second, third, outside = circle
    troubles = json.loads(shell("stator", "status", "--json"))["troubles"]
    [told] = [one for one in troubles if one["code"] != "no_worker"]
    assert (told["code"], told["level"], told["count"]) == ("circle", "error", 3)
    assert told["sentence"].startswith("circle: 3 objects wait for each other")
    assert told["detail"].count("waits for") == 3
    assert "circle: 3 objects wait for each other" in overview()
    for one in (first, second, third):
        reason = row(one).explain()[0]
        assert reason.code == "circle"
        assert f"testapp.Rollout {one.pk} waits for" in reason.sentence
    assert row(outside).explain()[0].code == "waits_for"
    _, *arguments = shlex.split(told["command"].replace("WHY", "wrong-order"))
    shell(*arguments)
    assert circle_through(Rollout, first.pk, "default") == []
    assert "circle" not in shell("stator", "status")


def test_what_waits_for_something_else_is_no_circle():
    build = put(Build, state="checked", state_ready=False)
    first = parked(build=build)
    assert circle_through(Rollout, parked(after=first).pk, "default") == []
    assert circle_through(Build, build.pk, "default") == []


def test_object_that_waits_for_itself_is_a_circle():
    alone = parked()
    change(alone, after=alone)
    assert circle_through(Rollout, alone.pk, "default") == [(Rollout, alone.pk)]
