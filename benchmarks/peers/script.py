"""Shared code of the Python peers' scripts. The peer's interpreter runs it, so it needs only the standard library.

A script is run as ``python NAME_peer.py URL JOBS [--processes 1] [--size N] [--each]``. It creates the tables, enqueues
in bulk or, with ``--each``, one job at a time with a commit for each, and prints ``{"enqueued": n, "seconds": s}``. It
waits for a line on its standard input. Then it runs the workers until the store has nothing left, and prints
``{"jobs": n, "seconds": s, "jobs_per_second": r, "cpu": s}``. The seconds begin with the workers, after their imports,
and end when the store shows every job as finished; ``cpu`` is that of the workers.

With ``--install`` it only creates the tables. With ``--offer RATE`` it enqueues without end, and with ``--serve MS`` it
runs what is enqueued, as the module ``offer`` describes.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any

from offer import offer, serve

# Enqueues one job for each due time.
Send = Callable[[list[float]], object]

# Seconds without a handled job after which the run has failed.
PATIENCE = 60

_progress: Any = None
_slot = 0


@dataclass(frozen=True)
class Peer:
    """A peer's functions; ``work`` runs a worker without end, with a batch or concurrency.

    ``enqueue`` and ``left``, which counts the jobs that have not ended: None if it is only measured at a steady rate.

    ``each``: enqueues one job at a time; None if that is not measured. ``sender``: gives a function that enqueues a job
    ``timed`` for each of the due times that it gets; None if the peer is not measured at a steady rate.
    """

    install: Callable[[str], None]
    work: Callable[[str, int], None]
    enqueue: Callable[[str, int], None] | None = None
    left: Callable[[str], int] | None = None
    each: Callable[[str, int], None] | None = None
    sender: Callable[[str], AbstractContextManager[Send]] | None = None


def begin() -> None:
    """Record the start of a worker; it calls this when everything is imported."""
    _progress.cpu[_slot] = time.process_time()
    _progress.began[_slot] = time.monotonic()


def handled() -> None:
    """Count one job that was run in this process; the job calls it."""
    _progress.handled[_slot] += 1


def main(peer: Peer, size: int) -> None:
    """Run the script as the module describes; ``size`` is the default batch or concurrency."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("jobs", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--size", type=int, default=size)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--offer", type=float)
    parser.add_argument("--serve", type=float)
    options = parser.parse_args()
    if options.install or options.offer or options.serve is not None:
        _run_one_part(peer, options)
        return
    enqueue: Any = peer.each if options.each else peer.enqueue
    peer.install(options.url)
    started = time.monotonic()
    enqueue(options.url, options.jobs)
    _tell(enqueued=options.jobs, seconds=time.monotonic() - started)
    sys.stdin.readline()
    seconds, cpu = _drain(peer, options)
    _tell(jobs=options.jobs, seconds=seconds, jobs_per_second=options.jobs / seconds, cpu=cpu)


def _run_one_part(peer: Peer, options: argparse.Namespace) -> None:
    if options.install:
        peer.install(options.url)
    elif options.offer:
        sender: Any = peer.sender
        with sender(options.url) as send:
            offer(send, options.offer)
    else:
        _share(_Progress(1), 0)
        serve(options.serve)
        peer.work(options.url, options.size)


class _Progress:
    """Memory that the processes share; each writes into its own slot."""

    def __init__(self, processes: int) -> None:
        self.began = RawArray("d", processes)
        self.cpu = RawArray("d", processes)
        self.handled = RawArray("q", processes)


def _drain(peer: Peer, options: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds from the first worker's start to the end of the last job, and the workers' CPU seconds."""
    progress = _Progress(options.processes)
    # With fork, the workers would inherit this process's connections and threads.
    context = multiprocessing.get_context("spawn")
    workers: list[Any] = [
        context.Process(target=_work, args=(peer.work, options.url, options.size, progress, slot))
        for slot in range(options.processes)
    ]
    before = _cpu_of_ended()
    for worker in workers:
        worker.start()
    try:
        _wait(lambda: sum(progress.handled), options.jobs, workers)
        left: Any = peer.left
        _wait(lambda: -left(options.url), 0, workers)
        ended = time.monotonic()
    finally:
        _end(workers)
    if sum(progress.handled) != options.jobs:
        raise SystemExit(f"{sum(progress.handled)} runs of {options.jobs} jobs")
    began = min(moment for moment in progress.began if moment)
    return ended - began, _cpu_of_ended() - before - sum(progress.cpu)


def _share(progress: Any, slot: int) -> None:
    global _progress, _slot
    _progress, _slot = progress, slot


def _work(work: Callable[[str, int], None], url: str, size: int, progress: _Progress, slot: int) -> None:
    _share(progress, slot)
    # Standard output is reserved for the two lines.
    os.dup2(2, 1)
    work(url, size)


def _wait(reached: Callable[[], int], wanted: int, workers: list[Any]) -> None:
    best, deadline = reached(), time.monotonic() + PATIENCE
    while best < wanted:
        time.sleep(0.003)
        now = reached()
        if now > best:
            best, deadline = now, time.monotonic() + PATIENCE
        if time.monotonic() > deadline or not any(worker.is_alive() for worker in workers):
            raise SystemExit(f"the workers stopped at {best} of {wanted}")


def _end(workers: list[Any]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(15)
        if worker.is_alive():
            worker.kill()
            worker.join()


def _cpu_of_ended() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tell(**values: float) -> None:
    print(json.dumps(values), flush=True)
