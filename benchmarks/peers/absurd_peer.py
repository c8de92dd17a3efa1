"""Absurd with its asynchronous worker, and the schema that its command line brings.

It offers something else: it stores the result of every step, so that a task resumes where it stopped. A run that has
ended or was claimed by somebody else cannot be completed. It keeps the row of the task and one for each run. Each task
is completed by itself, in a function of the database.
"""

import asyncio
import json
from contextlib import contextmanager

import offer
import psycopg
import script
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

QUEUE = "default"


def install(url: str) -> None:
    """Create its schema and the queue."""
    with psycopg.connect(url) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        connection.execute("SELECT absurd.create_queue(%s)", (QUEUE,))


def enqueue(url: str, jobs: int) -> None:
    """Spawn the tasks by one statement, by its function of the database; its client has no bulk call."""
    with psycopg.connect(url) as connection:
        spawn = "absurd.spawn_task(%s, 'nothing', to_jsonb(number), '{}')"
        connection.execute(f"SELECT count(*) FROM generate_series(1, %s) AS number, LATERAL {spawn}", (jobs, QUEUE))


def each(url: str, jobs: int) -> None:
    """Spawn one task per statement."""

    async def all_of_them() -> None:
        app = await _app(url)
        for _ in range(jobs):
            await app.spawn("nothing", {})
        await app.close()

    asyncio.run(all_of_them())


@contextmanager
def sender(url: str):
    """Spawn the tasks of one moment by one statement."""
    spawn = "absurd.spawn_task(%s, 'timed', each, '{}')"
    with psycopg.connect(url, autocommit=True) as connection:
        yield lambda due: connection.execute(
            f"SELECT count(*) FROM jsonb_array_elements(%s) AS each, LATERAL {spawn}",
            (json.dumps([{"due": each} for each in due]), QUEUE),
        )


def work(url: str, size: int) -> None:
    """Run one worker that claims and runs ``size`` tasks at once; the default is 1."""

    async def run() -> None:
        app = await _app(url)
        script.begin()
        await app.start_worker(concurrency=size, poll_interval=0.05)

    asyncio.run(run())


def left(url: str) -> int:
    """Return the tasks that are not completed."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'").fetchone()[0]


async def _app(url):
    app = AsyncAbsurd(await psycopg.AsyncConnection.connect(url, autocommit=True), queue_name=QUEUE)

    @app.register_task(name="nothing")
    async def nothing(params, context) -> None:
        script.handled()

    @app.register_task(name="timed")
    async def timed(params, context) -> None:
        await offer.timed(params["due"])

    return app


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left, each, sender), size=100)
