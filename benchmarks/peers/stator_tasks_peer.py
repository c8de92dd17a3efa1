"""A task of Django's framework on this backend at a steady rate; its row and its run stay until they are pruned."""

from collections.abc import Iterator
from contextlib import contextmanager

import script
from stator_peer import run_worker, set_up

SETTINGS = "benchmarks.site"


def install(url: str) -> None:
    """Create the tables."""
    set_up(url, SETTINGS)
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def work(url: str, size: int) -> None:
    """Run the tasks that are enqueued."""
    set_up(url, SETTINGS)
    from tasks.models import Task

    run_worker(Task, size)


@contextmanager
def sender(url: str) -> Iterator[script.Send]:
    """Enqueue the tasks of one moment together."""
    set_up(url, SETTINGS)
    from benchmarks.functions import timed

    yield lambda due: timed.get_backend().enqueue_many(timed, [([each], {}) for each in due])


if __name__ == "__main__":
    script.main(script.Peer(install=install, work=work, sender=sender), size=128)
