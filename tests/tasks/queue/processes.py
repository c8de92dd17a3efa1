"""Worker processes by their names, and tasks that the code here runs."""

from stator.conf import load_settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.models import Worker
from stator.rows.workers import give_name
from stator.runner import StatorRunner
from tasks.models import Task
from tests.tasks.making import make_queue


def process(name="w1", rounds=1):
    """Let a worker process of that name attempt what it may; return how many attempts it made in each round."""
    runner = StatorRunner([Task])
    runner.name = name
    made = [runner.run_single_cycle() for _ in range(rounds)]
    return made[0] if rounds == 1 else made


def live_process(name, models=("tasks.task",), **columns):
    given = {"name": name, "host": "h", "pid": 1, "version": "1", "models": list(models), **columns}
    return Worker.objects.create(**{"id": new_worker_id(), **given})


def publish(action="break", queue=None, **options):
    queue = queue or make_queue(worker_retries=0, actions_elsewhere=False, max_attempts=20)
    return queue.publish(action, **options).task


def operations_of(name):
    worker = new_worker_id()
    give_name(worker, name)
    return operations_for(Task, load_settings(), worker)
