"""A worker with a name, as a process of its own: ``python -m tests.tasks.program QUEUE NAME [HANG]``.

It claims and resolves until every task of the queue has ended; with ``HANG`` it stops doing anything in the
middle of its claim of that number, and says so. The data of a task may name a door to go through.
"""

import signal
import sys
from threading import Event

import django

from tests.testapp.door import go_through

# Seconds of the lease of the claim in whose middle it stops.
LOST = 1.0


def main(name: str, worker: str, hang: int) -> None:
    """Work until there is nothing left."""
    from tasks.models import Queue

    queue, done = Queue.objects.get(name=name), 0
    print("started", flush=True)
    while queue.tasks.filter(state="pending").exists():
        # Only the claim that is never ended has a lease that ends soon.
        claims = queue.claim(worker=worker, lease=LOST if done + 1 == hang else None)
        for claim in claims:
            done += 1
            if done == hang:
                print(f"holds {claim.task.pk}", flush=True)
                signal.pause()
            if claim.task.data:
                go_through(**claim.task.data)
            claim.resolve(worker)
        # Others come in between, as where programs have something else to do as well.
        Event().wait(0.03 if claims else 0.1)


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
