"""``manage.py tasks token``: tokens of programs are created, listed and revoked."""

import json
from datetime import UTC
from functools import partial

import pytest
from django.core.management import CommandError

from tasks.queue.consumers import Consumer
from tests import commanding
from tests.tasks.serving import opened

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queue")]


run, asked = partial(commanding.run, "tasks", "token"), partial(commanding.asked, "tasks", "token")


def refused(*arguments):
    line = commanding.refused("tasks", "token", *arguments)
    assert not Consumer.objects.exists()
    return line


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


@pytest.mark.parametrize("moment", ["2130-01-31T12:00Z", "2130-01-31 14:00+02:00"])
def test_expiry_is_a_moment(moment):
    assert asked("create", "b", "--all-queues", "--verb", "query", "--expires", moment)["expires"].startswith("2130")
    assert Consumer.objects.get().expires.astimezone(UTC).hour == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["b", "--verb", "claim"], "choose the queues of the token"),
        (["b"], "choose what the token may do: --verb for its queues, or --object for managed objects"),
        (["b", "--object", "shop.orders"], "managed_objects: 'shop.orders' is not the label of a managed model"),
        (["b", "--object", "testapp.Expense:pay"], "must be a list of its events: approve, reject,"),
        (["b", "--verb", "claim", "--queue", "encode", "--queue", "decode"], "there is no queue 'decode'"),
        (["b", "--verb", "claim", "--all-queues", "--expires", "soon"], "--expires 'soon' is not a date or time"),
        (
            ["b", "--verb", "claim", "--all-queues", "--expires", "2130-02-31"],
            "--expires '2130-02-31' is not a date or time",
        ),
        (["b", "--verb", "claim", "--all-queues", "--expires", "2020-01-31"], "is in the past"),
        (["b", "--verb", "claim", "--all-queues", "--requests-per-minute", "0"], "requests_per_minute: "),
        (["b\x1b[31m", "--verb", "claim", "--all-queues"], "name: "),
    ],
)
def test_bad_input_gets_one_line_and_makes_nothing(arguments, message):
    assert message in refused("create", *arguments)


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
    with pytest.raises(CommandError, match="there is no consumer 'bot-2'"):
        run("revoke", "bot-2")


@pytest.mark.parametrize("arguments", [["create"], ["create", "b", "--verb", "dance"], ["list", "x"]])
def test_shell_gets_one_line(capsys, arguments):
    assert commanding.line_at_a_terminal(capsys, "tasks", "token", *arguments).startswith("tasks: ")
