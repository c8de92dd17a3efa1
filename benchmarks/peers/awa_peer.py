"""Awa, whose worker is written in Rust and calls Python for each job, with its own storage of queues.

A job has a lease with heartbeats, and the end of a run whose lease is over is rejected. Ended jobs are kept for a day.
The job has no states to go through.
"""

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass

import offer
import script
from awa import AsyncClient

QUEUE = "default"
# Four for each queue, and twenty, as its documentation on benchmarks advises.
CONNECTIONS = 24


@dataclass
class Nothing:
    """The arguments of the job."""

    number: int


@dataclass
class Timed:
    """The arguments of the job at a steady rate."""

    due: float


def install(url: str) -> None:
    """Create its tables, and its storage of queues, which new sites have."""

    async def make(client: AsyncClient) -> None:
        await client.migrate()
        await client.install_queue_storage()

    asyncio.run(_with_client(url, make))


def enqueue(url: str, jobs: int) -> None:
    """Stream 1,000 jobs at a time."""

    async def all_of_them(client: AsyncClient) -> None:
        for start in range(0, jobs, 1000):
            numbers = range(start, min(start + 1000, jobs))
            await client.enqueue_many_copy([Nothing(number) for number in numbers], queue=QUEUE)

    asyncio.run(_with_client(url, all_of_them))


def each(url: str, jobs: int) -> None:
    """Insert one job per statement."""

    async def all_of_them(client: AsyncClient) -> None:
        for number in range(jobs):
            await client.insert(Nothing(number), queue=QUEUE)

    asyncio.run(_with_client(url, all_of_them))


@contextmanager
def sender(url: str):
    """Stream the jobs of one moment."""
    with asyncio.Runner() as runner:
        client = AsyncClient(url, max_connections=CONNECTIONS)

        async def send(due: list[float]) -> None:
            await client.enqueue_many_copy([Timed(each) for each in due], queue=QUEUE)

        yield lambda due: runner.run(send(due))


def work(url: str, size: int) -> None:
    """Run one worker with ``size`` jobs at once; 128 in one queue is what its documentation measures."""

    async def run(client: AsyncClient) -> None:
        @client.task(Nothing, queue=QUEUE)
        async def nothing(job) -> None:
            script.handled()

        @client.task(Timed, queue=QUEUE)
        async def timed(job) -> None:
            await offer.timed(job.args.due)

        script.begin()
        await client.start([(QUEUE, size)])
        await asyncio.Event().wait()

    asyncio.run(_with_client(url, run))


def left(url: str) -> int:
    """Return the jobs that wait or run."""

    async def count(client: AsyncClient) -> int:
        found = [each for each in await client.queue_stats() if each.queue == QUEUE]
        return sum(each.total_queued + each.running + each.failed for each in found)

    return asyncio.run(_with_client(url, count))


async def _with_client(url, act):
    client = AsyncClient(url, max_connections=CONNECTIONS)
    try:
        return await act(client)
    finally:
        await client.close()


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left, each, sender), size=128)
