"""A bot as a process of its own: ``python -m tests.tasks.bot KIND QUEUE NAME LIMIT [BASE TOKEN]``.

``KIND`` is ``for``, ``run``, ``async`` or ``http``. It says which task it begins, does a task of the action ``hold``
until it reads a line, and for one of the action ``child`` forks a child and ends it.
"""

import asyncio
import signal
import sys

import django

from tasks.client import Client
from tests.children import end_child


def work(action, pk):
    """Run the synchronous bot."""
    print(f"begins {pk}", flush=True)
    if action == "hold":
        sys.stdin.readline()
    if action == "child":
        # Any program with a handler of its own loses a signal that comes while it forks.
        end_child(at_once=False)
    return "done"


async def awork(claim):
    """Run the asynchronous bot."""
    return await asyncio.to_thread(work, claim.task.action, claim.task.pk)


async def acknowledged(loop):
    """Run the loop as the main task of the program."""
    await loop.run(awork)


def main(kind, name, worker, limit, *server):
    """Work until the loop ends."""
    # A suite that runs in the background has it ignored, and so would this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = {"worker": worker, "limit": int(limit)}
    if kind == "http":
        loop = Client(*server).consume(name, **options, wait=1)
        print("started", flush=True)
        return loop.run(lambda claim: work(claim.task["action"], claim.task["id"]))
    from tasks.models import Queue

    queue = Queue.objects.get(name=name)
    print("started", flush=True)
    if kind == "async":
        return asyncio.run(acknowledged(queue.aconsume(**options)))
    if kind == "run":
        return queue.consume(**options).run(lambda claim: work(claim.task.action, claim.task.pk))
    for claim in queue.consume(**options):
        claim.resolve(work(claim.task.action, claim.task.pk))
    return None


if __name__ == "__main__":
    django.setup()
    main(*sys.argv[1:])
    print("ended", flush=True)
