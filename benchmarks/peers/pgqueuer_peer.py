"""pgqueuer on asyncpg and uvloop, as its command line runs it.

It does less than a move here: the job's row is deleted when it ends, and log rows tell when it was enqueued, picked and
ended. The end is written by the job's id alone. A worker whose heartbeats failed and whose job went to another worker
therefore still deletes it. The job has no states to go through.
"""

import asyncio
from contextlib import contextmanager

import asyncpg
import offer
import script
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries


def install(url: str) -> None:
    """Create its tables."""
    asyncio.run(_with_queries(url, lambda queries: queries.install()))


def enqueue(url: str, jobs: int) -> None:
    """Enqueue 1,000 jobs per statement."""

    async def all_of_them(queries: Queries) -> None:
        for start in range(0, jobs, 1000):
            count = min(1000, jobs - start)
            await queries.enqueue(["nothing"] * count, [None] * count, [0] * count)

    asyncio.run(_with_queries(url, all_of_them))


def each(url: str, jobs: int) -> None:
    """Enqueue one job per statement."""

    async def all_of_them(queries: Queries) -> None:
        for _ in range(jobs):
            await queries.enqueue("nothing", None)

    asyncio.run(_with_queries(url, all_of_them))


@contextmanager
def sender(url: str):
    """Enqueue the jobs of one moment per statement."""
    with asyncio.Runner() as runner:
        queries = Queries(AsyncpgDriver(runner.run(_connect(url))))

        def send(due: list[float]) -> None:
            payloads = [repr(each).encode() for each in due]
            runner.run(queries.enqueue(["timed"] * len(due), payloads, [0] * len(due)))

        yield send


def work(url: str, size: int) -> None:
    """Run one worker with batches of ``size`` jobs; the default is 10."""
    uvloop.run(_work(url, size))


def left(url: str) -> int:
    """Return the jobs in its table; ended ones are not there."""

    async def count(queries: Queries) -> int:
        rows = await queries.driver.fetch("SELECT count(*) AS count FROM pgqueuer")
        return rows[0]["count"]

    return asyncio.run(_with_queries(url, count))


async def _work(url, size):
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @queue.entrypoint("nothing")
    async def nothing(job) -> None:
        script.handled()

    @queue.entrypoint("timed")
    async def timed(job) -> None:
        await offer.timed(float(job.payload))

    script.begin()
    await queue.run(batch_size=size)


async def _connect(url):
    return await asyncpg.connect(url)


async def _with_queries(url, act):
    connection = await asyncpg.connect(url)
    try:
        return await act(Queries(AsyncpgDriver(connection)))
    finally:
        await connection.close()


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left, each, sender), size=100)
