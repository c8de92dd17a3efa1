"""procrastinate with its asynchronous worker.

It does less than a move here. Workers have heartbeats, but a job whose worker died stays "doing" until a task that the
application must write looks for stalled jobs. A job's end is written by its id, not fenced against a second run. It
keeps the row and writes an event for each step, as a history does. Each job is fetched and finished by itself.
"""

import asyncio
from contextlib import contextmanager

import offer
import procrastinate
import psycopg
import script

app = procrastinate.App(connector=procrastinate.PsycopgConnector())


@app.task(name="nothing")
async def nothing() -> None:
    """The job."""
    script.handled()


@app.task(name="timed")
async def timed(due: float) -> None:
    """The job at a steady rate."""
    await offer.timed(due)


def install(url: str) -> None:
    """Create its tables and functions."""
    asyncio.run(_with_app(url, 2, lambda app: app.schema_manager.apply_schema_async()))


def enqueue(url: str, jobs: int) -> None:
    """Enqueue 1,000 jobs per statement."""

    async def all_of_them(app: procrastinate.App) -> None:
        for start in range(0, jobs, 1000):
            await app.tasks["nothing"].batch_defer_async(*({} for _ in range(min(1000, jobs - start))))

    asyncio.run(_with_app(url, 2, all_of_them))


def each(url: str, jobs: int) -> None:
    """Enqueue one job per statement."""

    async def all_of_them(app: procrastinate.App) -> None:
        for _ in range(jobs):
            await app.tasks["nothing"].defer_async()

    asyncio.run(_with_app(url, 2, all_of_them))


@contextmanager
def sender(url: str):
    """Enqueue the jobs of one moment per statement."""
    connector = procrastinate.SyncPsycopgConnector(conninfo=url)
    with app.replace_connector(connector) as connected, connected.open():
        yield lambda due: connected.tasks["timed"].batch_defer(*({"due": each} for each in due))


def work(url: str, size: int) -> None:
    """Run one worker with ``size`` jobs at once, and as many connections as it needs for them."""

    async def run(app: procrastinate.App) -> None:
        script.begin()
        await app.run_worker_async(concurrency=size)

    asyncio.run(_with_app(url, size + 2, run))


def left(url: str) -> int:
    """Return the jobs that have not succeeded."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'").fetchone()[0]


async def _with_app(url, connections, act):
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=connections)
    with app.replace_connector(connector) as connected:
        async with connected.open_async():
            await act(connected)


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left, each, sender), size=30)
