"""pgqueuer on asyncpg and uvloop, as its command line runs it.

Less than a move here: the job's row is deleted when it ends, and log rows tell when it was enqueued, picked and
ended. An end is written by the job's id alone, so a worker that lost a job to another after its heartbeats failed to
come through still deletes it. The job has no states to go through.
"""

import asyncio

import asyncpg
import script
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries


def install(url: str) -> None:
    """Its tables."""
    asyncio.run(_with_queries(url, lambda queries: queries.install()))


def enqueue(url: str, jobs: int) -> None:
    """In one statement for each 1,000."""

    async def all_of_them(queries: Queries) -> None:
        for start in range(0, jobs, 1000):
            count = min(1000, jobs - start)
            await queries.enqueue(["nothing"] * count, [None] * count, [0] * count)

    asyncio.run(_with_queries(url, all_of_them))


def work(url: str, size: int) -> None:
    """One worker, ``size`` jobs a batch; the default is 10."""
    uvloop.run(_work(url, size))


def left(url: str) -> int:
    """Jobs in its table: those that ended are not."""

    async def count(queries: Queries) -> int:
        rows = await queries.driver.fetch("SELECT count(*) AS count FROM pgqueuer")
        return rows[0]["count"]

    return asyncio.run(_with_queries(url, count))


async def _work(url, size):
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @queue.entrypoint("nothing")
    async def nothing(job) -> None:
        script.handled()

    script.begin()
    await queue.run(batch_size=size)


async def _with_queries(url, act):
    connection = await asyncpg.connect(url)
    try:
        return await act(Queries(AsyncpgDriver(connection)))
    finally:
        await connection.close()


if __name__ == "__main__":
    script.main(script.Peer(install, enqueue, work, left), size=100)
