"""R3.8: processes race for the tasks of one value of an exclusive queue: one at a time, in order, all to the end."""

import sys
from collections import Counter
from contextlib import ExitStack

import pytest

from stator.migration_operations import Distribute
from stator.models import Report
from tasks.models import Task
from tests.faults.fleet import logged
from tests.processes import WorkerProcess
from tests.sizes import FULL, size
from tests.stator.dividing import distributed
from tests.tasks.making import make_queue
from tests.testapp.door import gone_through

pytestmark = [pytest.mark.proof, pytest.mark.fault, pytest.mark.django_db(transaction=True)]

PROCESSES, TASKS = size(12, 4), size(300, 40)
# How many of the processes are programs that claim by name; the others run ``runstator``.
KINDS = {"programs": PROCESSES, "runstator": 0, "both": PROCESSES // 2, "both, spread": PROCESSES // 2}
# What the databases say of a second running task of a value.
VIOLATIONS = ("UniqueViolation", "IntegrityError", "UNIQUE constraint")


class Program(WorkerProcess):
    """A program that claims by name until there is nothing left for it."""

    def __init__(self, queue, name):
        super().__init__(TESTAPP_ACTOR=name)
        self.command = [sys.executable, "-m", "tests.tasks.program", queue.name, name]


@pytest.fixture
def program(watch):
    """Start a program; what is left of it is ended before the triggers go."""
    with ExitStack() as stack:
        yield lambda queue, name: stack.enter_context(Program(queue, name))


def publish(queue, door, choice):
    """Publish the tasks in any order: the priority decides which is first."""
    told = {"action": "go-through", "metadata": {"title": "x"}}
    numbers = choice.sample(range(TASKS), TASKS)
    queue.publish_many(
        {"priority": number, "data": {"door": str(door), "number": number}, **told} for number in numbers
    )


def most_at_once(history):
    """Return how many tasks were held at one time at most, by what was committed."""
    held, most = set(), 0
    for event in history.events:
        (held.add if event.new.claim else held.discard)(event.pk)
        most = max(most, len(held))
    return most


@pytest.fixture
def queue(kind):
    """An exclusive queue, in all partitions of a divided table if it is spread."""
    if kind != "both, spread":
        yield make_queue(exclusive_key="title")
        return
    with distributed(Distribute("tasks.Task", by="shard", partitions=8)):
        yield make_queue(exclusive_key="title", spread=True)
        # Anything that is left would have to be copied.
        Task.objects.all().delete()


# In the suite, both kinds race among themselves and with each other.
@pytest.mark.parametrize("kind", KINDS if FULL else ["both"])
def test_tasks_of_one_value_run_one_at_a_time_and_in_order(proof, queue, watch, fleet, program, tmp_path, kind):
    proof = proof(f"R3.8 {kind}", full=900, short=500)
    watched, door = watch(Task), tmp_path / "door"
    publish(queue, door, proof.choice)
    # Until all are there: the first alone might do all.
    queue.pause(claim=True)
    programs = [program(queue, f"bot-{number}") for number in range(KINDS[kind])]
    # A lease that no attempt outlives, however slow the machine: whatever is claimed twice is a fault.
    workers = fleet("tasks.Task", STATOR_LEASE=60)
    for _ in range(PROCESSES - len(programs)):
        workers.start()
    workers.until(lambda: all("started" in each.output() for each in programs))
    workers.until(lambda: all(logged(each, "stator.ready") for each in workers.everyone))
    queue.resume()

    def all_done():
        done = Task.objects.filter(state="completed").count()
        proof.progress(f"{done} of {TASKS} tasks")
        return done == TASKS

    workers.until(all_done, proof.left)
    workers.stop()
    assert [each.wait(proof.left) for each in programs] == [0] * len(programs), "\n".join(
        each.output() for each in programs
    )

    went = gone_through(door)
    times = Counter(number for number, _ in went)
    proof.lost, proof.doubled = TASKS - len(times), sum(times.values()) - len(times)
    proof.figures |= {
        "processes": PROCESSES, "tasks": TASKS, "took part": len({pid for _, pid in went}),
        "at once": most_at_once(watched.history(Task)),
    }  # fmt: skip
    assert proof.figures["took part"] > 1
    assert proof.figures["at once"] == 1
    assert [number for number, _ in went] == list(range(TASKS)), "not in the order of their priorities"
    # Whoever found another inside was refused, which is an error of its task.
    assert not Report.objects.exists()
    assert not Task.objects.exclude(state_failures=0, state_crashes=0).exists()
    written = "".join(each.output() for each in (*programs, *workers.everyone))
    assert not [text for text in VIOLATIONS if text in written], written
    proof.judge()
    watched.judge(started=False)
