"""Lookups: the first row of several querysets, as the ORM would read each."""

import pytest
from django.db import connection, connections
from django.db.models import BigIntegerField, CharField, F
from django.db.models.functions import Now

from stator.claims import first_of_each
from stator.statements import Parameter
from tasks.models import Queue, Task
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)

NAME, PK = Parameter("name", CharField()), Parameter("pk", BigIntegerField())


def looked_up(key, **values):
    def build():
        queues = Queue.objects.filter(name=NAME).annotate(read_at=Now(), percent=F("max_attempts") + 1)
        return queues, Task.objects.filter(pk=PK)

    return first_of_each(connection.alias, key, build, values)


def test_instances_are_those_of_the_orm_with_annotations():
    queue = make_queue("100%s 'of' it", max_attempts=3, http_actions=["a"])
    task = queue.publish("resize", {"image": [7, "\u00e9"]}, metadata={"title": "abc"}, worker_ids=["bot-1"]).task
    # Often enough that a session prepares the statement.
    for _ in range(8):
        found, same = looked_up("both", name="100%s 'of' it", pk=task.pk)
    assert (found, same) == (queue, task)
    stored = Queue.objects.get()
    assert {name: found.__dict__[name] for name in stored.__dict__ if name != "_state"} == {
        name: value for name, value in stored.__dict__.items() if name != "_state"
    }
    assert (same.data, same.metadata, same.worker_ids, str(same.state)) == (
        {"image": [7, "\u00e9"]}, {"title": "abc"}, ["bot-1"], "pending",
    )  # fmt: skip
    assert found.percent == 4
    assert found.read_at.tzinfo is not None
    assert same._state.db == connection.alias
    assert not same._state.adding


@pytest.mark.postgresql
def test_lookup_checks_a_kept_connection_itself_and_replaces_a_closed_one(monkeypatch):
    make_queue("kept")
    wrapper, checked = connections[connection.alias], []
    usable = type(wrapper).is_usable
    monkeypatch.setattr(type(wrapper), "is_usable", lambda self: checked.append(True) or usable(self))
    monkeypatch.setitem(wrapper.settings_dict, "CONN_HEALTH_CHECKS", True)
    wrapper.close()

    def in_a_request():
        wrapper.health_check_done = False
        found, _ = looked_up("both", name="kept", pk=0)
        return found.name

    # Often enough that a session prepares the statement.
    assert [in_a_request() for _ in range(8)] == ["kept"] * 8
    assert not checked
    other = connections.create_connection(connection.alias)
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [wrapper.connection.info.backend_pid])
    other.close()
    assert in_a_request() == "kept"
    assert checked
    wrapper.close()
