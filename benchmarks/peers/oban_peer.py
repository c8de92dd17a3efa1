"""oban for Python on uvloop, as its command line runs it.

It does nearly as much as a move here: the row stays until it is pruned, and its end is guarded by the time of the
attempt. It does less in two ways. It takes a job that has run for five minutes for one of a dead worker, even if it is
only slow; and it stores no history of moves. Each job's end is an UPDATE of its own, many in one transaction.
"""

import asyncio

import psycopg
import script
import uvloop
from oban import Oban, worker
from oban.schema import install as install_schema


@worker(queue="default")
class Nothing:
    """The job."""

    async def process(self, job) -> None:
        """Do nothing."""
        script.handled()


def install(url: str) -> None:
    """Create its tables."""
    asyncio.run(_with_pool(url, install_schema))


def enqueue(url: str, jobs: int) -> None:
    """Enqueue with its bulk call, 1,000 at a time."""

    async def all_of_them(pool) -> None:
        oban = Oban(pool=pool)
        for start in range(0, jobs, 1000):
            await oban.enqueue_many([Nothing.new() for _ in range(min(1000, jobs - start))])

    asyncio.run(_with_pool(url, all_of_them))


def work(url: str, size: int) -> None:
    """Run one worker with ``size`` jobs at once; the default is 10."""

    async def run(pool) -> None:
        script.begin()
        async with Oban(pool=pool, queues={"default": size}):
            await asyncio.Event().wait()

    uvloop.run(_with_pool(url, run))


def left(url: str) -> int:
    """Return the jobs that are not completed."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM oban_jobs WHERE state <> 'completed'").fetchone()[0]


async def _with_pool(url, act):
    pool = await Oban.create_pool(url)
    try:
        await act(pool)
    finally:
        await pool.close()


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left), size=100)
