"""A task of Django's framework on this backend at a steady rate; its row and its run stay until they are pruned."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import django
import offer
import script


def install(url: str) -> None:
    """Create the tables."""
    _set_up(url)
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def work(url: str, size: int) -> None:
    """Run one worker with ``size`` tasks at once."""
    _set_up(url)
    from benchmarks import offered
    from stator.runner import StatorRunner
    from stator.worker.startup import collect_rarely
    from tasks.models import Task

    offered.run = offer.timed
    collect_rarely()
    StatorRunner([Task], concurrency=size).run()


@contextmanager
def sender(url: str) -> Iterator[script.Send]:
    """Enqueue the tasks of one moment together."""
    _set_up(url)
    from benchmarks.functions import timed

    yield lambda due: timed.get_backend().enqueue_many(timed, [([each], {}) for each in due])


def _set_up(url: str) -> None:
    os.environ["DATABASE_URL"] = url
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.site"
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    django.setup()


if __name__ == "__main__":
    script.main(script.Peer(install=install, work=work, sender=sender), size=128)
