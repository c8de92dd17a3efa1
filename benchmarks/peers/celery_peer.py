"""Celery on Redis with the solo pool, its fastest for one process.

It does far less than a move here. Nothing is on disk when a job is accepted. The job is acknowledged before it runs, so
it is lost if its worker dies. Nothing is stored afterwards (the result is ignored).
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
    """Empty the store."""
    redis.Redis.from_url(url).flushall()


def enqueue(url: str, jobs: int) -> None:
    """Enqueue one by one over one connection: Celery has no bulk call."""
    app.conf.broker_url = url
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(jobs):
            nothing.apply_async(producer=producer)


def work(url: str, size: int) -> None:
    """Run one worker that prefetches ``size`` jobs."""
    app.conf.broker_url = url
    app.conf.worker_prefetch_multiplier = size
    # The worker imports modules until it is ready.
    celery.signals.worker_ready.connect(lambda **_: script.begin(), weak=False)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL"]
    app.worker_main(["--quiet", "worker", "--pool", "solo", "--concurrency", "1", *quiet])


def left(url: str) -> int:
    """Return the jobs in the queue, and those fetched but not acknowledged."""
    store = redis.Redis.from_url(url)
    return store.llen("celery") + store.hlen("unacked")


if __name__ == "__main__":
    script.main(script.Peer(install, work, enqueue, left), size=100)
