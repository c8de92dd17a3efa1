"""Jobs at a steady rate, for ``benchmarks.horizon``. The peer's interpreter runs this: only the standard library.

One process offers jobs and another runs them, both until they are ended. Each prints a line of JSON for every second:
``{"second": 17…, "enqueued": n}``, or ``{"second": 17…, "claim_ms": [...]}`` with the milliseconds from the moment at
which each job was due to the start of its handler.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Jobs that are due within 20 ms are offered together, as a page or a request offers several.
TICK = 0.02


@dataclass
class _Jobs:
    """The seconds of a job, and the milliseconds after which those of this second began."""

    work: float = 0.0
    begun: list[float] = field(default_factory=list)


_jobs = _Jobs()


async def timed(due: float) -> None:
    """Do the work of one job that was due at this Unix time."""
    _jobs.begun.append(1000 * (time.time() - due))
    await asyncio.sleep(_jobs.work)


def offer(send: Callable[[list[float]], object], rate: float) -> None:
    """Call ``send`` with the due times of jobs, ``rate`` of them a second. If it is slow, the next ones are late."""
    began = time.time()
    sent = ticks = enqueued = 0
    second = int(began)
    while True:
        due = began + ticks * TICK
        time.sleep(max(0.0, due - time.time()))
        ticks += 1
        jobs = int(rate * ticks * TICK) - sent
        if jobs:
            send([due] * jobs)
        sent += jobs
        enqueued += jobs
        if (now := int(time.time())) > second:
            print(json.dumps({"second": second, "enqueued": enqueued}), flush=True)
            second, enqueued = now, 0


def serve(work: float) -> None:
    """Let each job take ``work`` milliseconds, and print from now on what has begun."""
    _jobs.work = work / 1000
    threading.Thread(target=_print_every_second, daemon=True).start()


def _print_every_second() -> None:
    while True:
        second = int(time.time())
        time.sleep(second + 1 - time.time())
        begun, _jobs.begun = _jobs.begun, []
        print(json.dumps({"second": second, "claim_ms": [round(each, 2) for each in begun]}), flush=True)
