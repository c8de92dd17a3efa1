"""A server process on the database of a test, and what programs ask it for."""

import re
from contextlib import contextmanager

from tasks.api.access import consumer_of
from tasks.api.errors import Unauthorized
from tasks.extensions.api.models import Consumer, Verb
from tasks.models import Batch, Queue, Run, Schedule, Task
from tests.processes import WorkerProcess, wait_until

# The token of a claim that nobody has.
NOBODYS = "00000000-0000-8000-8000-000000000000"

ADDRESS = re.compile(r"Starting (?:WSGI )?development server at (http://127\.0\.0\.1:\d+)/")


@contextmanager
def server(port=0):
    """``manage.py runserver`` while in the context; gives the address of the API."""
    with WorkerProcess("--noreload", "--insecure", f"127.0.0.1:{port}", command="runserver") as process:
        wait_until(
            lambda: ADDRESS.search(process.output()) or process.returncode is not None,
            message=lambda: f"no server: {process.output()}",
        )
        found = ADDRESS.search(process.output())
        assert found, process.output()
        yield f"{found[1]}/api/"


def opened(token):
    """The consumer that a token lets in, or None."""
    try:
        return consumer_of(token, {})
    except Unauthorized:
        return None


def token(name="full", *, queues=(), verbs=Verb.values, **values):
    """The token of a new consumer; for all queues where none are named."""
    consumer = Consumer(name=name, all_queues=not queues, **{f"may_{verb}": True for verb in verbs}, **values)
    text = consumer.issue()
    consumer.save()
    consumer.queues.set(queues)
    return text


class Scene:
    """A queue with a task that waits, one that is held, one that is a dead letter, a schedule, and an open batch."""

    def __init__(self, queue):
        self.queue = queue
        self.held = queue.publish("resize", {"image": 1}, metadata={"title": "held"}).task
        [self.claim] = queue.claim(worker="bot-1", lease=600)
        self.dead = queue.publish("resize", {"image": 2}, max_attempts=1).task
        [claim] = queue.claim(worker="bot-1")
        claim.fail("broken")
        self.task = queue.publish("resize", {"image": 3}, key="image-3", metadata={"title": "abc"}).task
        self.schedule = Schedule.objects.create(name="refresh", queue=queue, action="resize", period=60)
        self.batch = Batch.open(queue)

    def path(self, path):
        return path.format(
            queue=self.queue.name,
            task=self.task.pk,
            held=self.held.pk,
            dead=self.dead.pk,
            schedule=self.schedule.pk,
            batch=self.batch.pk,
            name="charge",
        )

    def body(self, path, body):
        return {**body, "token": str(self.claim.token)} if "/claim/" in path and body is not None else body

    def untouched(self):
        rows = Task.objects.order_by("pk").values_list("pk", "state", "state_claim", "state_locked_until")
        runs = Run.objects.order_by("pk").values_list("pk", "ended", "outcome")
        queues = Queue.objects.order_by("pk").values_list("name", "lease", "claim_paused")
        schedules = Schedule.objects.order_by("pk").values_list("pk", "enabled", "asked")
        batches = Batch.objects.order_by("pk").values_list("pk", "state")
        return [list(rows), list(runs), list(queues), list(schedules), list(batches)]
