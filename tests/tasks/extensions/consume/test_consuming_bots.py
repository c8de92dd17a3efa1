"""Bots in processes of their own, in Python and over HTTP, that are asked to stop."""

import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tasks.models import Claimant, Run, Task
from tests.processes import environment_for_subprocess, wait_until
from tests.sizes import PATIENCE
from tests.tasks.making import fresh, make_queue
from tests.tasks.serving import server, token

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# Of the tasks that a bot holds for longer.
LEASE = 3.0


@pytest.fixture
def start(transactional_db):
    """Start a bot; all that are left are killed in the end."""
    with ExitStack() as stack:

        def started(kind, name="bot-1", limit=1):
            given = [stack.enter_context(server()), token()] if kind == "http" else []
            command = [sys.executable, "-m", "tests.tasks.bot", kind, "encode", name, str(limit), *given]
            bot = stack.enter_context(
                subprocess.Popen(
                    command,
                    env=environment_for_subprocess(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(bot.kill)
            assert bot.stdout.readline() == "started\n"
            return bot

        yield started


def begun(bot):
    """The task that it begins next."""
    return Task.objects.get(pk=int(bot.stdout.readline().removeprefix("begins ")))


def go_on(bot):
    bot.stdin.write("\n")
    bot.stdin.flush()


def test_bot_that_is_asked_to_stop_ends_its_task_and_hands_back_the_others(start):
    queue = make_queue(lease=LEASE)
    tasks = [queue.publish("hold").task for _ in range(3)]
    bot = start("run", limit=3)
    assert begun(bot) == tasks[0]
    bot.send_signal(signal.SIGTERM)
    # It holds all three beyond their leases.
    until = max(Run.objects.values_list("lease_until", flat=True))
    wait_until(lambda: Run.objects.filter(ended=None, lease_until__gt=until).count() == 3)
    assert bot.poll() is None
    go_on(bot)
    assert (bot.wait(PATIENCE), bot.stdout.read()) == (0, "ended\n")
    assert [fresh(task).status for task in tasks] == ["completed", "pending", "pending"]
    assert [fresh(task).attempts for task in tasks] == [1, 0, 0]
    assert fresh(tasks[0]).result == "done"
    assert len(queue.claim(worker="bot-1", limit=3)) == 2


def test_bot_that_waits_ends_when_it_is_asked_to(start):
    """The loop of asynchronous code is told to stop where it waits in its own tests."""
    make_queue()
    bot = start("http")
    wait_until(lambda: Claimant.objects.filter(worker="bot-1").exists())
    bot.send_signal(signal.SIGINT)
    assert (bot.wait(PATIENCE), bot.stdout.read()) == (0, "ended\n")
