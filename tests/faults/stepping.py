"""``python -m tests.faults.stepping KILLS SEED``: kills workers at random moments of handlers with ten steps.

Workers are forked from a process that has loaded everything, so that a thousand are started and killed in minutes.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from threading import Event

import django

# So many workers run at a time, and so many objects at least are not done when they start.
WORKERS, BUSY = 4, 120
# The longest time in seconds that a worker lives after the first call of a step.
LIFE = 0.3


def main(kills: int, seed: int) -> None:
    """Kill workers, then let one finish what is left."""
    django.setup()
    choice = random.Random(seed)
    for done in range(0, kills, WORKERS):
        if done % 100 == 0:
            # A round waits for the lease of what was killed, and on a crowded machine for the start of four workers.
            print(f"{time.strftime('%H:%M:%S')} {done} of {kills} killed, {left()} objects left", file=sys.stderr)
        keep_busy()
        before = calls()
        workers = [forked(until_idle=False) for _ in range(WORKERS)]
        while calls() == before:
            Event().wait(0.005)
        for worker in workers:
            Event().wait(choice.uniform(0, LIFE))
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
    while left():
        os.waitpid(forked(until_idle=True), 0)


def calls() -> int:
    """Return how much was noted of calls."""
    from tests.testapp.stepped import LOG

    log = Path(os.environ[LOG])
    return log.stat().st_size if log.exists() else 0


def forked(*, until_idle: bool) -> int:
    """Start a worker; it must not share a connection with this process."""
    from django.db import connections

    from stator.runner import StatorRunner
    from tests.testapp.stepped import KeptPurchase

    connections.close_all()
    if worker := os.fork():
        return worker
    try:
        StatorRunner([KeptPurchase], concurrency=8, until_idle=until_idle, schedule_interval=0.5).run()
    finally:
        os._exit(0)


def keep_busy() -> None:
    """Have objects to do."""
    from tests.testapp.stepped import KeptPurchase

    KeptPurchase.objects.bulk_create(KeptPurchase() for _ in range(BUSY - left()))


def left() -> int:
    """Return how many objects are not done."""
    from tests.testapp.stepped import KeptPurchase

    return KeptPurchase.objects.exclude(state="done").count()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
