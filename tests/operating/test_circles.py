"""Objects that wait for each other: wrong at once, one line for the circle, and a command that ends it."""

import json
import re
import shlex
from unittest import mock

import pytest
from django.urls import reverse

from stator.admin.access import Pages
from stator.extensions.related.circles import circle_through
from stator.extensions.related.waits import parking
from tests.operating.tools import overview, shell
from tests.stator.making import change, put, row
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db


def parked(**fields):
    rollout = put(Rollout, state="started", state_ready=False, **fields)
    change(rollout, **parking())
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
    troubles = json.loads(shell("stator", "status", "testapp.Rollout", "--json"))["troubles"]
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
    assert "circle" not in shell("stator", "status", "testapp.Rollout")


def test_circle_is_drawn_with_links_to_what_the_user_may_see(circle, admin_client):
    first, second, third, outside = circle
    pages = {one.pk: reverse("admin:testapp_rollout_change", args=[one.pk]) for one in circle}

    def links(one):
        drawn = re.findall(r'<ol class="stator-circle".*?</ol>', admin_client.get(pages[one.pk]).text, re.DOTALL)
        return re.findall(r'href="(.*?)"', "".join(drawn))

    # From this object on, each with what it waits for.
    assert links(second) == [pages[third.pk], pages[first.pk]]
    assert links(outside) == []
    with mock.patch.object(Pages, "may_view", return_value=False):
        assert links(second) == []


def test_long_circle_is_not_followed_to_its_end(django_assert_max_num_queries):
    rollouts = [parked()]
    for _ in range(40):
        rollouts.append(parked(after=rollouts[-1]))
    change(rollouts[0], after=rollouts[-1])
    with django_assert_max_num_queries(25):
        assert circle_through(Rollout, rollouts[0].pk, "default") == []


def test_object_that_waits_for_itself_is_a_circle_and_what_waits_for_something_else_is_none():
    build = put(Build, state="checked", state_ready=False)
    first = parked(build=build)
    assert circle_through(Rollout, parked(after=first).pk, "default") == []
    assert circle_through(Build, build.pk, "default") == []
    alone = parked()
    change(alone, after=alone)
    assert circle_through(Rollout, alone.pk, "default") == [(Rollout, alone.pk)]
