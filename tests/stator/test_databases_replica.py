"""Writes, and what decides about them, go where the routers write, although a replica answers what the site reads."""

from contextlib import ExitStack

import pytest
from django.db import connections, router
from django.db.models import QuerySet

from stator.models import History, Pause
from tests.stator.making import ago, put, raw
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(databases=["default", "other"])


class Replica:
    """Reads go to the other database, writes to the default one; as in Django's documentation."""

    def db_for_read(self, model, **hints):
        return "other"

    def db_for_write(self, model, **hints):
        return "default"

    def allow_relation(self, *args, **hints):
        return True


def refuse(execute, sql, params, many, context):
    text = sql.lstrip().upper()
    assert text.startswith(("SELECT", "SAVEPOINT", "RELEASE", "EXPLAIN", "ROLLBACK", "PRAGMA")), (
        f"the replica got {sql}"
    )
    assert "FOR " not in text.partition(" WHERE ")[2] or "UPDATE" not in text, f"the replica got {sql}"
    return execute(sql, params, many, context)


@pytest.fixture
def replica(settings):
    """Once the test calls it, reads are routed to the other database, which refuses to write."""
    with ExitStack() as stack:

        def begin():
            settings.DATABASE_ROUTERS = [Replica()]
            stack.enter_context(connections["other"].execute_wrapper(refuse))
            assert router.db_for_read(Parcel) == "other"

        yield begin


def both(model, **late):
    """The same row in both databases; ``late``: what the replica does not have yet, as it has it."""
    row = put(model)
    copy = raw(model).get(pk=row.pk)
    for name, value in late.items():
        setattr(copy, name, value)
    copy.save_base(raw=True, force_insert=True, using="other")
    return row


def read(model):
    found = model.objects.get()
    assert found._state.db == "other"
    return found


def of_primary(model):
    return QuerySet(model, using="default").get()


def test_move_by_hand_of_an_instance_that_the_replica_answered(replica):
    both(Parcel)
    replica()
    parcel = read(Parcel)
    parcel.transition_perform("sent", actor="ann", reason="by hand")
    assert (parcel.state, of_primary(Parcel).state, of_primary(Parcel).state_version) == ("sent", "sent", 1)
    assert History.objects.using("default").get().actor == "ann"
    assert raw(Parcel, "other").get().state == "packed"


ACTS = [
    lambda: Parcel.transition_perform_queryset(Parcel.objects.all(), "sent"),
    lambda: Parcel.stator.in_state("packed").move("sent"),
]


@pytest.mark.parametrize("act", ACTS)
def test_querysets_move_what_the_primary_has(replica, act):
    """The replica is behind: there the row is in another state still."""
    both(Parcel, state="stamped")
    replica()
    assert act() == 1
    assert of_primary(Parcel).state == "sent"


def test_operators(replica):
    row = both(Parcel)
    raw(Parcel).filter(pk=row.pk).update(state_ready=False, state_next_attempt=ago(-600), state_failures=2)
    replica()
    assert Parcel.stator.retry(actor="ann") == 1
    assert of_primary(Parcel).state_ready
    assert Parcel.stator.pause(where={"address": ""}, reason="checks")._state.db == "default"
    assert read(Parcel).explain()[0].code == "paused"
    assert Parcel.stator.resume() == 1
    assert not Pause.objects.using("default").active().exists()
