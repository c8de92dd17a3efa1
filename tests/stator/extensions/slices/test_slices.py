"""Models with ``spread``: every statement of a worker is for the rows of one slice, and together they miss none."""

import pickle
import re
from collections import Counter

import pytest
from django.db import connection

from stator.graph.outcomes import Moved
from stator.migration_operations import Distribute
from stator.models import History
from stator.rows.spread import SPREAD
from stator.runner import StatorRunner
from stator.worker import duties
from tests.stator.db.test_postgresql_plans import explaining
from tests.stator.dividing import while_divided
from tests.stator.making import operations_of, raw
from tests.testapp.spreading import Sheet, SheetGraph

if connection.vendor == "postgresql":
    from stator.db import session

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.postgresql]


partitions = while_divided(Distribute("sheet", by="shard", partitions=8))


@pytest.fixture
def operations():
    return operations_of(Sheet)


def sheets(*, count=1, shard=None, **columns):
    made = raw(Sheet).bulk_create([Sheet(shard=shard) for _ in range(count)])
    if columns:
        raw(Sheet).update(**columns)
    return {sheet.pk for sheet in made}


def pks(claims):
    return {each.pk for each in claims}


def claim(operations, limit=100):
    return operations.claim([SheetGraph.new], limit)


def perform(duty, operations):
    duties.perform(duty, operations, stopped=lambda: False)


def states():
    return Counter(raw(Sheet).values_list("state", flat=True))


def test_rows_of_all_slices_are_claimed_and_recorded_each_once(operations):
    made, seen = sheets(count=80), []
    assert len(set(raw(Sheet).values_list("shard", flat=True))) > 10
    while claims := claim(operations, 30):
        # However few rows each slice has, it is full.
        assert len(claims) == min(30, 80 - len(seen))
        seen += [each.pk for each in claims]
        operations.record([(each, Moved(SheetGraph.done)) for each in claims])
    assert len(seen) == 80
    assert set(seen) == made
    assert states() == {"done": 80}
    assert History.objects.filter(to="done").count() == 80


def test_slice_with_very_many_rows_holds_up_no_other(operations):
    sheets(count=200, shard=3)
    others = set().union(*(sheets(shard=shard) for shard in SPREAD if shard != 3))
    taken = set()
    for _ in SPREAD:
        taken |= pks(claim(operations, 10))
    assert others <= taken


def test_batches_and_limits_of_a_state_are_for_all_slices_together(operations):
    sheets(count=30, state="stacked")
    StatorRunner([Sheet]).run_single_cycle()
    assert states() == {"done": 30}
    sheets(count=9, state="narrow")
    assert len(operations.claim([SheetGraph.narrow], 10)) == 2
    assert not operations.claim([SheetGraph.narrow], 10)


def test_claim_that_is_pickled_knows_its_slice(operations):
    [pk] = sheets()
    [mine] = claim(operations)
    copied = pickle.loads(pickle.dumps(mine.operations))
    assert copied.scope == mine.operations.scope
    assert list(copied.rows.values_list("pk", flat=True)) == [pk]


@pytest.mark.citus_lacks("plans that EXPLAIN shows as PostgreSQL does")
def test_claim_and_record_meet_the_partition_of_their_slice_alone(operations, monkeypatch):
    sheets(count=20, shard=2)
    with explaining("testapp_sheet", monkeypatch) as explained:
        for _ in range(session.USES + 2):
            claims = claim(operations.parts()[2], 2)
            claims[0].operations.record([(each, Moved(SheetGraph.done)) for each in claims])
    for plan in explained.plans:
        # What may be updated is listed first.
        assert set(re.findall(r"Scan.* on (testapp_sheet_part\d)", plan)) <= {"testapp_sheet_part2"}, plan
    assert " on testapp_sheet_part2 " in explained.plans[-1]
