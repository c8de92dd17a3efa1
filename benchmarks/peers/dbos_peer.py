"""dbos with a queue of asynchronous workflows.

It offers something else: it stores inputs, outputs and every step of a workflow, so that a workflow resumes where it
stopped. It does less than a move here in that there is no lease: a workflow whose process died waits until a process of
the same name starts.
"""

import threading

import psycopg
import script
from dbos import DBOS, DBOSClient

QUEUE = "peer"


@DBOS.workflow()
async def nothing() -> None:
    """The job."""
    script.handled()


def install(url: str) -> None:
    """Create its tables and the queue."""
    DBOS(config=_config(url))
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.1)
    DBOS.destroy()


def enqueue(url: str, jobs: int) -> None:
    """Enqueue one by one with a commit each: DBOS has no bulk call."""
    client = DBOSClient(system_database_url=url)
    for _ in range(jobs):
        client.enqueue({"queue_name": QUEUE, "workflow_name": nothing.__qualname__})
    client.destroy()


def work(url: str, size: int) -> None:
    """Run one worker with ``size`` workflows at once."""
    DBOS(config=_config(url))
    script.begin()
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.1, worker_concurrency=size or None, on_conflict="always_update")
    threading.Event().wait()


def left(url: str) -> int:
    """Return the workflows that have not succeeded."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'").fetchone()[0]


def _config(url):
    return {"name": "peer", "system_database_url": url, "log_level": "ERROR", "application_version": "1"}


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left), size=0)
