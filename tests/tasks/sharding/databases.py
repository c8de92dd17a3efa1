"""Queues in both databases, what is in each, and databases that are away."""

from contextlib import ExitStack, contextmanager

import pytest
from django.db import connections

from tasks.models import Queue, Task
from tasks.sharding import shards
from tests.stator.making import raw
from tests.tasks.making import make_queue

BOTH = ["default", "other"]


def exclusive():
    return make_queue(databases=BOTH, exclusive_key="title")


def every(**lookups):
    """The tasks of both databases."""
    return [task for alias in BOTH for task in raw(Task, alias).filter(**lookups).order_by("pk")]


def copy_of(queue, alias="other"):
    return raw(Queue, alias).get(name=queue.name)


def values_of(alias, count=1):
    """Texts that stand for this one of both databases."""
    found = [text for text in map(str, range(1000)) if shards._chosen(Queue(databases=BOTH), text) == alias]
    return found[:count]


def publish_into(queue, alias, **options):
    """A task in this database."""
    published = queue.publish("resize", {"image": 7}, key=values_of(alias)[0], **options)
    assert published.task._state.db == alias
    return published.task


@contextmanager
def away(*aliases):
    """As if nobody answered where these databases are."""
    with ExitStack() as stack:
        for alias in aliases:
            connections[alias].close()
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setitem(connections[alias].settings_dict, "NAME", "/nowhere/nothing")
            patch.setitem(connections[alias].settings_dict, "PORT", "1")
            stack.callback(connections[alias].close)
        yield
