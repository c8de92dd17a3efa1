"""Numbers of tasks tell their database."""

import pytest
from django.db import transaction

from tasks.exceptions import TaskError
from tasks.models import Task
from tasks.sharding.task_ids import BITS, MAX_NUMBER, database_of, number_from
from tests.stator.making import raw
from tests.tasks.making import claim_one, make_queue
from tests.tasks.sharding.databases import BOTH, copy_of, publish_into

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class TestNumbers:
    def test_numbers_tell_the_database(self, queue):
        here, there = publish_into(queue, "default"), publish_into(queue, "other")
        assert here.pk < 1 << BITS < there.pk < 2 << BITS
        assert [database_of(pk) for pk in (here.pk, there.pk)] == BOTH
        assert database_of(5 << BITS) is database_of(1 << 70) is None
        assert (MAX_NUMBER + 1) << BITS <= 2**53

    def test_numbers_never_go_back(self, queue):
        first = publish_into(queue, "other")
        raw(Task, "other").all().delete()
        for _ in range(2):
            number_from(copy_of(queue))
        assert publish_into(queue, "other").pk > first.pk

    def test_numbers_of_another_database_are_refused(self, queue):
        # Taken back, for SQLite would count on from there in other tests.
        with transaction.atomic(using="other"):
            raw(Task, "other").create(pk=(2 << BITS) + 1, queue=copy_of(queue), action="a")
            with pytest.raises(TaskError, match="numbers that belong to another"):
                number_from(copy_of(queue))
            transaction.set_rollback(True, using="other")

    def test_rows_that_are_there_keep_their_numbers(self):
        task = make_queue().publish("a", key="k").task
        make_queue("spread", databases=BOTH)
        claim = claim_one(task.queue)
        assert claim.task.pk == task.pk < 1 << BITS
        assert database_of(task.pk) == "default"
