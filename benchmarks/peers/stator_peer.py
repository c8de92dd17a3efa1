"""This framework at a steady rate: a job is an object that one handler moves, and its row stays."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import offer
import script


def set_up(url: str, settings: str) -> None:
    """Set Django up on the database."""
    os.environ["DATABASE_URL"], os.environ["DJANGO_SETTINGS_MODULE"] = url, settings
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    django.setup()


def run_worker(model: Any, size: int) -> None:
    """Run one worker with ``size`` handlers at once."""
    from benchmarks import offered
    from stator.runner import StatorRunner
    from stator.worker.startup import collect_rarely

    offered.run = offer.timed
    collect_rarely()
    StatorRunner([model], concurrency=size).run()


def install(url: str) -> None:
    """Create the tables."""
    from benchmarks.harness import make_tables

    make_tables(_model(url))


def work(url: str, size: int) -> None:
    """Move what is offered."""
    run_worker(_model(url), size)


@contextmanager
def sender(url: str) -> Iterator[script.Send]:
    """Create the objects of one moment by one statement."""
    model = _model(url)
    yield lambda due: model.objects.bulk_create(model(due=each) for each in due)


def _model(url: str) -> Any:
    set_up(url, "benchmarks.settings")
    from benchmarks.models import OfferedItem

    return OfferedItem


if __name__ == "__main__":
    script.main(script.Peer(install=install, work=work, sender=sender), size=128)
