"""Workers of one simple queue at the same moment: nothing twice, nothing lost, in order."""

from itertools import cycle

import pytest
from django.db import transaction

from tasks.models import Run, Task
from tests.sizes import PATIENCE, size
from tests.stator.making import begun_beside, raw
from tests.tasks.making import make_queue, race

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

CALLERS, MESSAGES = size(20, 8), size(10_000, 1_000)


@pytest.mark.proof
@pytest.mark.parametrize("metadata", [None, {"title": "a"}])
def test_callers_who_claim_in_batches_get_nothing_twice_and_each_batch_in_order(metadata, monkeypatch):
    # Some of the batches are found at the head of the line, and some beyond it.
    monkeypatch.setattr("stator.db.sql.FIRST_ROWS", 300)
    queue = make_queue()
    queue.publish_many(
        {"action": "a", "priority": (number * 7919) % 1000, "metadata": {"title": title}}
        for number, title in zip(range(MESSAGES), cycle("a" if metadata is None else "ab"), strict=False)
    )

    def claim_all(name):
        batches = []
        while batch := queue.claim(worker=name, limit=50, metadata=metadata):
            batches.append([(claim.task.priority, claim.task.pk) for claim in batch])
        return batches

    batches = [batch for found in race(CALLERS, claim_all) for batch in found]
    got = [pk for batch in batches for _, pk in batch]
    assert len(got) == len(set(got)) == Run.objects.count()
    assert all(batch == sorted(batch) for batch in batches)
    # Who looks while another has the rest locked finds nothing; asking again does.
    rest = queue.claim(worker="last", limit=1000, metadata=metadata)
    claimed = raw(Task).filter(state_claim__isnull=False)
    assert len(got) + len(rest) == claimed.count() == MESSAGES // (1 if metadata is None else 2)
    assert set(claimed.values_list("metadata__title", flat=True)) == {"a"}


def test_claim_of_a_worker_that_holds_one_task_at_most_waits_for_its_other_claim():
    queue = make_queue(one_per_worker=True)
    queue.publish_many({"action": "a"} for _ in range(2))
    # Noted already, or the second would wait for the note of the first.
    queue.note_worker("one")
    with transaction.atomic():
        found = queue.claim(worker="one")
        beside = begun_beside(lambda: queue.claim(worker="one"))
        assert not beside.done(), "the other claim of the worker did not wait"
    assert (len(found), beside.result(PATIENCE)) == (1, [])
    assert raw(Task).filter(state_claim__isnull=False).count() == 1
