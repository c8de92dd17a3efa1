"""oban for Python on uvloop, as its command line runs it.

Nearly a move here: the row stays until it is pruned, and its end is guarded by the moment of the attempt. Less in
that a dead worker's job is one that has run for five minutes, as a slow one has, and that it keeps no history of moves.
Each job's end is an UPDATE of its own, many in one transaction.
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
    """Its tables."""
    asyncio.run(_with_pool(url, install_schema))


def enqueue(url: str, jobs: int) -> None:
    """By its call for many, 1,000 at a time."""

    async def all_of_them(pool) -> None:
        oban = Oban(pool=pool)
        for start in range(0, jobs, 1000):
            await oban.enqueue_many([Nothing.new() for _ in range(min(1000, jobs - start))])

    asyncio.run(_with_pool(url, all_of_them))


def work(url: str, size: int) -> None:
    """One worker, ``size`` jobs at once; the default is 10."""

    async def run(pool) -> None:
        script.begin()
        async with Oban(pool=pool, queues={"default": size}):
            await asyncio.Event().wait()

    uvloop.run(_with_pool(url, run))


def left(url: str) -> int:
    """Jobs that are not completed."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM oban_jobs WHERE state <> 'completed'").fetchone()[0]


async def _with_pool(url, act):
    pool = await Oban.create_pool(url)
    try:
        await act(pool)
    finally:
        await pool.close()


if __name__ == "__main__":
    script.main(script.Peer(install, enqueue, work, left), size=100)
