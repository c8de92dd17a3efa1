"""The journal of a connection: what is undone by a rollback, and what is not."""

import gc
from contextlib import suppress
from weakref import ref

import pytest
from django.db import DatabaseError, connection, transaction

from stator.rows import rollbacks
from stator.rows.rollbacks import journal_of, on_rollback, remembered
from tests.stator.making import raw
from tests.testapp.basic import Step

pytestmark = pytest.mark.django_db(transaction=True)


class Undone(Exception):
    """Rolls a transaction back."""


class Holder:
    def __init__(self):
        self.value = "before"


def fill(holder, value="after"):
    with remembered("default", [holder]):
        holder.value = value


def rolled_back(*calls):
    with suppress(Undone), transaction.atomic():
        for call in calls:
            call()
        raise Undone


def test_writes_are_undone_from_the_last_to_the_first_and_new_attributes_are_gone():
    holder = Holder()
    rolled_back(lambda: fill(holder), lambda: fill(holder, "later"), lambda: fill(holder, "last"))
    assert vars(holder) == {"value": "before"}
    # With a savepoint that was released.
    rolled_back(transaction.atomic(lambda: fill(holder)))
    assert vars(holder) == {"value": "before"}
    # Nothing is noted outside of a transaction.
    fill(holder)
    rolled_back(lambda: None)
    assert holder.value == "after"


def test_savepoint_that_is_older_than_the_journal_undoes_all_of_it():
    holder = Holder()
    connection.close()
    with transaction.atomic():
        for name in [name for name in vars(connection) if name == rollbacks.JOURNAL]:
            del vars(connection)[name]
        rolled_back(lambda: fill(holder))
        assert holder.value == "before"


@pytest.mark.parametrize("end", ["close", "commit fails"])
def test_transaction_that_ends_in_another_way_is_undone(end, monkeypatch):
    holder = Holder()
    if end == "close" and connection.vendor == "sqlite" and connection.is_in_memory_db():
        pytest.skip("a database in memory is never closed")
    with suppress(DatabaseError), transaction.atomic():
        raw(Step).create(name="a")
        fill(holder)
        if end == "close":
            connection.close()
        else:
            monkeypatch.setattr(connection, "_commit", lambda: (_ for _ in ()).throw(DatabaseError("deferred")))
    assert holder.value == "before"
    monkeypatch.undo()
    assert not raw(Step).exists()


def test_objects_may_be_gone_before_the_transaction_ends_and_entries_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(rollbacks, "MANY", 10)
    with transaction.atomic():
        journal = journal_of("default")
        journal._many = 10
        kept = Holder()
        fill(kept)
        gone = Holder()
        fill(gone)
        seen = ref(gone)
        del gone
        gc.collect()
        assert seen() is None
        for _ in range(100):
            fill(Holder())
        assert len(journal._entries) <= 20
        transaction.set_rollback(True)
    assert kept.value == "before"


def test_function_is_called_by_a_rollback_alone():
    told = []
    on_rollback("default", lambda: told.append("outside"))
    with transaction.atomic():
        on_rollback("default", lambda: told.append("committed"))
    rolled_back(lambda: on_rollback("default", lambda: told.append("rolled back")))
    assert told == ["rolled back"]


def test_attributes_that_are_not_named_keep_what_they_got_also_from_a_call_that_raises():
    holder = Holder()

    def both():
        with remembered("default", [holder], ["value"]):
            holder.value, holder.other = "after", 1
            raise Undone

    rolled_back(both)
    assert vars(holder) == {"value": "before", "other": 1}
