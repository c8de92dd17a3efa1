"""``manage.py tasks token``: tokens of programs are created, listed and revoked."""

import json
from functools import partial

import pytest

from tasks.extensions.api.models import Consumer
from tests import commanding
from tests.tasks.serving import opened

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queue")]


run, asked = partial(commanding.run, "tasks", "token"), partial(commanding.asked, "tasks", "token")


def test_create_prints_the_token_alone(queue):
    token = run("create", "bot-1", "--queue", "encode", "--verb", "publish", "--verb", "claim").strip()
    consumer = opened(token)
    assert consumer.name == "bot-1"
    assert consumer.verbs == ["publish", "claim"]
    assert list(consumer.reach()) == [queue]
    assert consumer.expires is None


def test_create_with_everything_as_json():
    options = "--verb query --expires 2130-01-31T00:00Z --requests-per-minute 9 --rows-per-minute 8"
    told = asked("create", "bot-1", "--all-queues", *options.split())
    assert opened(told.pop("token"))
    assert told == {
        "name": "bot-1", "prefix": Consumer.objects.get().prefix, "enabled": True, "verbs": ["query"], "queues": None,
        "objects": {}, "expires": "2130-01-31T00:00:00+00:00", "used": None, "requests_per_minute": 9,
        "rows_per_minute": 8,
    }  # fmt: skip


def test_token_for_managed_objects_needs_no_queue():
    token = run("create", "bank", "--object", "testapp.Expense:approve,reject", "--object", "testapp.packet").strip()
    assert opened(token).managed_objects == {
        "testapp.expense": ["approve", "reject"], "testapp.packet": [],
    }  # fmt: skip
    assert ", objects testapp.expense, testapp.packet, never used" in run("list")


def test_list_shows_no_token():
    assert "There are no consumers" in run("list")
    token = run("create", "bot-1", "--queue", "encode", "--verb", "claim").strip()
    prefix = Consumer.objects.get().prefix
    assert run("list") == f"bot-1: tk_{prefix}_..., claim, queues encode, never used\n"
    [told] = asked("list")
    assert told["queues"] == ["encode"]
    assert token not in run("list") + json.dumps(told)


def test_revoke_ends_a_token():
    token = run("create", "bot-1", "--queue", "encode", "--verb", "claim").strip()
    assert "bot-1 is disabled" in run("revoke", "bot-1")
    assert opened(token) is None
    assert ", disabled, " in run("list")
    assert asked("revoke", "bot-1")["enabled"] is False
