"""How many tasks worker processes hold that call synchronous actions, and what becomes of those not begun."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stator.models import Worker
from tasks.models import Queue, Task
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

# Of STATOR_TASKS; the default.
THREADS = 10
QUICKLY = {"STATOR_REAP_INTERVAL": "0.2", "STATOR_POLL_INTERVAL": "0.1"}


class Begun(NamedTuple):
    """A call of an action, as the action has written it down."""

    task: int
    worker: str


class Naps:
    """Tasks whose actions write down that they have begun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def make(
        self, count: int, action: str = "nap", seconds: float = 0.4, *, ends: bool = False, **columns: Any
    ) -> list[int]:
        queue, _ = Queue.objects.get_or_create(name="default", defaults={"actions_elsewhere": False})
        data = {"path": str(self.path), "seconds": seconds, "ends": ends}
        columns = {"priority": 100, "max_attempts": 1} | columns
        made = [Task(queue=queue, action=action, data=data, **columns) for _ in range(count)]
        return [task.pk for task in Task.objects.bulk_create(made)]

    @property
    def begun(self) -> list[Begun]:
        lines = self.path.read_text().splitlines()
        return [Begun(int(task), worker) for task, worker in map(str.split, lines)]


@pytest.fixture
def naps(tmp_path: Path) -> Naps:
    return Naps(tmp_path / "begun")


def ready(count: int = 1) -> bool:
    return Worker.objects.live().filter(handled__gte=0).count() >= count


def in_state(state: str) -> set[int]:
    return set(Task.objects.filter(state=state).values_list("pk", flat=True))


@pytest.mark.needs("fleet")
def test_two_processes_share_the_work_and_an_urgent_task_begins_next(worker_process: Any, naps: Naps) -> None:
    """Timeouts count from the beginning of the call: the last tasks have waited for longer."""
    with worker_process("tasks.Task", **QUICKLY) as first, worker_process("tasks.Task", **QUICKLY) as second:
        output: Callable[[], str] = lambda: first.output() + second.output()  # noqa: E731
        wait_until(lambda: ready(2), message=output)
        pks = naps.make(60, timeout=3)
        wait_until(lambda: len(naps.begun) >= 2 * THREADS, message=output)
        [urgent] = naps.make(1, priority=1)
        seen = len(naps.begun)
        wait_until(lambda: len(in_state("pending")) == 0, message=output)
        done, said = in_state("completed"), output()
    assert done == {*pks, urgent}, said
    # Claims that were under way at its publication may give each thread one other task.
    assert [each.task for each in naps.begun].index(urgent) <= seen + 2 * THREADS
    shares = {each.worker for each in naps.begun}
    # How much each does is up to the machine.
    assert len(shares) == 2


def test_short_task_that_was_claimed_and_not_begun_is_no_dead_letter_when_its_process_dies(
    worker_process: Any, naps: Naps
) -> None:
    naps.make(50, seconds=0)
    [ends] = naps.make(1, ends=True)
    naps.make(99, seconds=0, priority=200)
    with worker_process("tasks.Task", STATOR_LEASE="3", **QUICKLY) as first:
        first.wait()
    with worker_process("tasks.Task", **QUICKLY) as second:
        wait_until(lambda: Task.objects.end_exhausted() == 0 and not in_state("pending"), message=second.output)
    begun = [each.task for each in naps.begun]
    unseen = in_state("errored") - set(begun)
    assert ends not in unseen
    # Each other thread may be in a call that has not written this down yet.
    assert len(unseen) < THREADS
    assert len(begun) == len(set(begun)) == 150 - len(unseen)


def test_nothing_is_begun_after_a_stop_and_only_what_had_begun_stays_counted(worker_process: Any, naps: Naps) -> None:
    naps.make(30, seconds=60)
    settings = {"STATOR_SHUTDOWN_TIMEOUT": "1", "STATOR_CONCURRENCY": "12"}
    with worker_process("tasks.Task", **settings, **QUICKLY) as worker:
        wait_until(lambda: len(naps.begun) >= THREADS, message=worker.output)
        worker.send(signal.SIGINT)
        assert worker.wait() == 0, worker.output()
    begun = {each.task for each in naps.begun}
    assert len(naps.begun) == len(begun) == THREADS
    counted = Task.objects.filter(state_claim=None, state="pending").values_list("pk", "state_attempts")
    assert dict(counted) == {pk: int(pk in begun) for pk in in_state("pending")}
    assert Task.objects.filter(state="pending").count() == 30


def test_actions_on_the_loop_begin_while_every_thread_is_busy(worker_process: Any, naps: Naps) -> None:
    slow = naps.make(2 * THREADS, seconds=60)
    with worker_process("tasks.Task", STATOR_SHUTDOWN_TIMEOUT="1", **QUICKLY) as worker:
        wait_until(lambda: len(naps.begun) == THREADS, message=worker.output)
        pks = naps.make(30, "doze", seconds=0.1)
        wait_until(lambda: in_state("completed") == set(pks), message=worker.output)
        held = Task.objects.filter(pk__in=slow, state_claim__isnull=False).count()
        assert held == THREADS
        assert worker.stop() == 0
