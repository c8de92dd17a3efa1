"""``manage.py tasks``: what every subcommand refuses, in one line and with nothing changed."""

from collections.abc import Iterator

import pytest
from django.core.management import load_command_class
from django.core.management.base import CommandParser

from tasks.models import Consumer, Queue, Schedule, Task
from tests.commanding import line_at_a_terminal, refused
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)

OF_TOKEN = ["token", "create", "b", "--verb", "claim"]
REFUSED_TOKENS = [
    (["token", "revoke", "bot-2"], "there is no consumer 'bot-2'"),
    (OF_TOKEN, "choose the queues of the token: either --queue NAME, once or more, or --all-queues"),
    (["token", "create", "b"], "choose what the token may do: --verb for its queues, or --object for managed objects"),
    ([*OF_TOKEN, "--queue", "encode", "--queue", "decode"], "there is no queue 'decode'; see tasks queues"),
    (["token", "create", "b", "--object", "shop.orders"], "'shop.orders' is not the label of a managed model"),
    (["token", "create", "b", "--object", "testapp.Expense:pay"], "must be a list of its events: "),
    ([*OF_TOKEN, "--all-queues", "--expires", "2130-02-31"], "--expires '2130-02-31' is not a date or time"),
    ([*OF_TOKEN, "--all-queues", "--expires", "2020-01-31"], "is in the past"),
    ([*OF_TOKEN, "--all-queues", "--requests-per-minute", "0"], "requests_per_minute: "),
]  # fmt: skip
# The queue encode takes any action, and the queue ours those of the code; ours has a schedule, hourly.
REFUSED = [
    (["queues", "encod"], "there is no queue 'encod'; did you mean 'encode'?"),
    (["queues", "\x1b[31m"], "the name of queue '\\x1b[31m' has a character that cannot be printed"),
    (["dead", "--limit", "0"], "--limit 0 must be from 1"),
    (["requeue"], "choose dead letters"),
    (["requeue", "9" * 30], "cannot be the number of a task"),
    (["requeue", "--queue", "encode", "--per-minute", "nan"], "per_minute=nan must be a number from "),
    (["cancel", "0"], "0 cannot be the number of a task"),
    (["pause", "encode"], "choose what to pause: --publish, --claim or both"),
    (["pause", "encode", "--claim", "--for", "-1"], "--for: seconds=-1.0 must be a number above 0"),
    (["resume", "encod"], "there is no queue 'encod'; did you mean 'encode'?"),
    (["retry", "resize", "--queue", "encod"], "there is no queue 'encod'; did you mean 'encode'?"),
    (["list", "--limit", "0"], "--limit 0 must be from 1 to 10,000"),
    (["show", "4711"], "there is no task 4711; see tasks list"),
    (["publish", "encod", "resize"], "there is no queue 'encod'; did you mean 'encode'?"),
    (["publish", "encode", "resize", "--data", "{image"], "--data '{image' is not JSON"),
    (["publish", "encode", "resize", "--metadata", "x"], "--metadata 'x' must be NAME=VALUE, for instance tenant=3"),
    (["publish", "encode", "resize", "--data", "[" * 20_000], "is nested too deep"),
    (["schedules", "--run"], "--run needs the names of schedules"),
    (["schedules", "hourly", "--entity", "x"], "there is no schedule 'hourly' of entity 'x'"),
    (["schedules", "--action", "echo"], "--action needs the names of schedules"),
    (["schedules", "hourly", "--action", "ehco"], "schedule hourly: no action 'ehco' is registered"),
    (["schedules", "hourly", "--rate-limit", "0"], "--rate-limit 0 must be a number of at least 1e-06"),
    (["queue", "create", "encode"], "there is a queue 'encode' already; change it with: tasks queue set"),
    (["queue", "create", "new", "--exclusive-key", "7"], "--exclusive-key: it is a name in metadata"),
    (["queue", "create", "new", "--http-action", "two words"], "--http-action: 'two words' is not the name of an"),
    (["queue", "set", "encoed", "--lease", "9"], "there is no queue 'encoed'; did you mean 'encode'?"),
    (["queue", "set", "encode"], "choose at least one rule to change; see tasks queue set --help"),
    *REFUSED_TOKENS,  # tasks.extensions.api
]  # fmt: skip
# What the parser refuses.
WRONG = [
    ["nothing"], ["cancel"], ["cancel", "x"], ["show", "x"], ["pause"],
    ["token", "x"], ["token", "create"], ["token", "list", "x"],  # tasks.extensions.api
    ["token", "create", "b", "--verb", "dance"],  # tasks.extensions.api
]  # fmt: skip


def subcommands(parser: CommandParser) -> Iterator[list[str]]:
    groups = [each.choices for each in parser._actions if isinstance(each.choices, dict)]
    if not groups:
        yield []
    for group in groups:
        for name, below in group.items():
            yield from ([name, *rest] for rest in subcommands(below))


def test_tables_have_every_subcommand() -> None:
    named = [arguments[: 2 if arguments[0] in ("queue", "token") else 1] for arguments, _ in REFUSED]
    parser = load_command_class("tasks", "tasks").create_parser("manage.py", "tasks")
    assert [each for each in subcommands(parser) if each not in [*named, *(each[:2] for each in WRONG)]] == []


@pytest.mark.needs("events")
def test_bad_input_is_refused_in_one_line_and_changes_nothing() -> None:
    queue = make_queue()
    ours = make_queue("ours", actions_elsewhere=False)
    Schedule.objects.create(name="hourly", queue=ours, action="echo", period=3600.0)
    before = [list(model.objects.order_by("pk").values()) for model in (Queue, Schedule)]
    for arguments, message in REFUSED:
        assert message in refused("tasks", *arguments), arguments
    assert [list(model.objects.order_by("pk").values()) for model in (Queue, Schedule)] == before
    assert (Task.objects.exists(), queue.current().claiming_paused) == (False, False)
    assert not Consumer.objects.exists()  # tasks.extensions.api


def test_wrong_arguments_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in WRONG:
        assert line_at_a_terminal(capsys, "tasks", *arguments).startswith("tasks: "), arguments
