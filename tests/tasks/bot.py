"""A bot as a process of its own: ``python -m tests.tasks.bot KIND QUEUE NAME LIMIT [BASE TOKEN]``.

``KIND`` is ``run`` or ``http``. It says which task it begins, and does a task of the action ``hold`` until it reads a
line.
"""

import signal
import sys

import django

from tasks.client import Client


def work(action, pk):
    """Do one task."""
    print(f"begins {pk}", flush=True)
    if action == "hold":
        sys.stdin.readline()
    return "done"


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
    return queue.consume(**options).run(lambda claim: work(claim.task.action, claim.task.pk))


if __name__ == "__main__":
    django.setup()
    main(*sys.argv[1:])
    print("ended", flush=True)
