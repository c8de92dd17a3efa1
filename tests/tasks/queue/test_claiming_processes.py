"""Named workers in processes of their own, some of which are killed in the middle of a task."""

import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise

import pytest

from tasks.models import Run, Task
from tests.processes import environment_for_subprocess, wait_until
from tests.sizes import CROWDED, PATIENCE
from tests.tasks.making import make_queue

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def start(transactional_db):
    """Start a program; all that are left are killed in the end."""
    with ExitStack() as stack:

        def started(*arguments):
            command = [sys.executable, "-m", "tests.tasks.program", *map(str, arguments)]
            program = stack.enter_context(
                subprocess.Popen(command, env=environment_for_subprocess(), stdout=subprocess.PIPE, text=True)
            )
            stack.callback(program.kill)
            assert program.stdout.readline() == "started\n"
            return program

        yield started


def runs_of_one_value(queue):
    """From claim to end, in the order of claims."""
    return list(Run.objects.filter(task__queue=queue).order_by("claimed", "pk"))


def test_task_of_a_holder_that_is_killed_is_taken_over_when_its_lease_ends(start):
    queue = make_queue(exclusive_key="title")
    queue.publish_many({"action": "a", "metadata": {"title": "x"}} for _ in range(6))
    holder = start(queue.name, "bot-0", 3)
    told = holder.stdout.readline()
    others = [start(queue.name, f"bot-{number}") for number in (1, 2)]
    holder.kill()

    wait_until(lambda: not Task.objects.exclude(state="completed").exists())

    assert [other.wait(PATIENCE) for other in others] == [0, 0]
    task = Task.objects.get(pk=int(told.removeprefix("holds ")))
    lost, taken_over = task.runs.order_by("claimed")
    assert (lost.worker, lost.timed_out, lost.outcome) == ("bot-0", True, "")
    late = taken_over.claimed - lost.lease_until
    assert timedelta(0) <= late < timedelta(seconds=5 + CROWDED)
    assert task.result == taken_over.worker
    runs = [run for run in runs_of_one_value(queue) if run != lost]
    assert all(before.ended <= after.claimed for before, after in pairwise(runs))
