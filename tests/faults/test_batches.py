"""Workers that are killed while they run the tasks of a batch: it ends once, and publishes one action."""

import random
from threading import Event

import pytest

from stator.models import History
from tasks.models import Batch, Task
from tests.faults.test_kill import SOON
from tests.tasks.making import make_queue

pytestmark = [pytest.mark.fault, pytest.mark.harmed, pytest.mark.django_db(transaction=True)]


def test_batch_publishes_its_action_once_though_workers_are_killed(fleet, thorough):
    count, crew, kills = (10_000, 6, 20) if thorough else (200, 3, 2)
    queue = make_queue(actions_elsewhere=False, max_attempts=1000)
    batch, choice = Batch(on_done="told"), random.Random(7)
    queue.publish_many([{"action": "resize", "data": {"image": n}} for n in range(count)], batch=batch)
    workers = fleet("tasks.Task", "tasks.Batch", STATOR_MAX_CRASHES=1000, STATOR_BATCH_SIZE=50, **SOON)
    for _ in range(crew):
        workers.start()

    unended = batch.tasks.filter(state="pending")
    for kill in range(kills):
        workers.until(lambda kill=kill: unended.count() < count * (1 - kill / kills), 600)
        Event().wait(choice.uniform(0, 0.2))
        workers.kill(choice.choice(list(workers.alive)))
        workers.start()
    workers.until(lambda: Task.objects.filter(action="told", state="completed").exists(), 600)
    workers.stop()

    batch.refresh_from_db()
    assert (batch.state, batch.counts()["completed"]) == ("done", count)
    assert queue.tasks.filter(action="told").count() == 1
    # Without the attempts that failed beside a kill, after which the batch stayed.
    moves = History.objects.filter(model_label="tasks.batch").exclude(to="").order_by("pk").values_list("to", flat=True)
    assert list(moves) == ["ending", "done"]
    print(f"{count:,} tasks of one batch, {crew} workers, {kills} kills: its action was published once")
