"""States whose concurrency is limited over all workers: they are claimed by one worker at a time."""

import pytest
from django.db import transaction

from stator.conf import Settings
from stator.db import operations_for, portable
from stator.db.interface import Operations, new_worker_id
from stator.rows.concurrency_limits import Limit
from tests.sizes import PATIENCE
from tests.stator.making import automatic, begun_beside, raw
from tests.testapp.power import Visitor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@pytest.fixture(params=["vendor", "portable"])
def make(request):
    """Makes operations, each as of a worker of its own."""
    kind = operations_for if request.param == "vendor" else _portable
    return lambda: kind(Visitor, Settings(), new_worker_id())


def _portable(model, settings, worker_id):
    return Operations(model, "default", settings, worker_id, portable.parts_of)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_claim_waits_for_one_that_is_not_committed_and_counts_what_that_took(make, is_known):
    first, second = make(), make()
    states = automatic(first)
    if is_known:
        with transaction.atomic():
            Limit.lock("default", first.label, states[0].name)
    Visitor.objects.bulk_create(Visitor() for _ in range(5))
    with transaction.atomic():
        taken = first.claim(states, 1)
        beside = begun_beside(lambda: second.claim(states, 10))
        assert not beside.done(), "the claim of another worker did not wait"
    taken += beside.result(PATIENCE)
    assert len(taken) == raw(Visitor).filter(state_claim__isnull=False).count() == 2
