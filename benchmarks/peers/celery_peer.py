"""Celery on Redis with the solo pool, which is its fastest for one process.

Far less than a move here: nothing is on disk when a job is accepted, the job is acknowledged before it runs and so is
lost with its worker, and nothing is kept of it (its result is ignored).
"""

import celery
import celery.signals
import redis
import script

app = celery.Celery("peer")
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, worker_hijack_root_logger=False)


@app.task(name="nothing")
def nothing() -> None:
    """The job."""
    script.handled()


def install(url: str) -> None:
    """An empty store."""
    redis.Redis.from_url(url).flushall()


def enqueue(url: str, jobs: int) -> None:
    """One by one over one connection: it has no call for many."""
    app.conf.broker_url = url
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(jobs):
            nothing.apply_async(producer=producer)


def work(url: str, size: int) -> None:
    """One worker, ``size`` jobs fetched ahead."""
    app.conf.broker_url = url
    app.conf.worker_prefetch_multiplier = size
    # Until it is ready it imports.
    celery.signals.worker_ready.connect(lambda **_: script.begin(), weak=False)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL"]
    app.worker_main(["--quiet", "worker", "--pool", "solo", "--concurrency", "1", *quiet])


def left(url: str) -> int:
    """Jobs in the queue, and those that were fetched and not acknowledged."""
    store = redis.Redis.from_url(url)
    return store.llen("celery") + store.hlen("unacked")


if __name__ == "__main__":
    script.main(script.Peer(install, enqueue, work, left), size=100)
