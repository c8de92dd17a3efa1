"""A worker with a name, as a process of its own: ``python -m tests.tasks.program QUEUE NAME [HANG]``.

It claims and resolves until the queue has been empty for it for some time; with ``HANG`` it stops doing anything in the
middle of its claim of that number, and says so.
"""

import signal
import sys
from threading import Event

import django

# Looks in vain, a twentieth of a second apart, after which it takes the queue for empty.
IN_VAIN = 100


def main(name: str, worker: str, hang: int) -> None:
    """Work until there is nothing left."""
    from tasks.models import Queue

    queue, done, in_vain = Queue.objects.get(name=name), 0, 0
    print("started", flush=True)
    while in_vain < IN_VAIN:
        claims = queue.claim(worker=worker)
        in_vain = 0 if claims else in_vain + 1
        Event().wait(0 if claims else 0.05)
        for claim in claims:
            done += 1
            if done == hang:
                print(f"holds {claim.task.pk}", flush=True)
                signal.pause()
            claim.resolve(worker)


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
