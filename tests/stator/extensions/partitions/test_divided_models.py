"""A managed model whose table ``Distribute`` has divided: its objects are found, counted and moved as before."""

import pytest
from django.db import IntegrityError, NotSupportedError, connection
from django.db.models import Count

from stator.db.tables import index_names, lack_of
from stator.migration_operations import Distribute
from stator.models import History
from stator.strict_fence import StrictFence
from stator.testing import drain
from tests.stator.dividing import distributed, execute
from tests.stator.making import raw
from tests.testapp.spreading import Sheet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


@pytest.fixture(autouse=True)
def divided():
    """The table of sheets over partitions, with the trigger of strict mode."""
    with distributed(StrictFence("Sheet"), Distribute("Sheet", by="shard"), StrictFence("Sheet")):
        yield


def sheets(count):
    return {sheet.pk for sheet in Sheet.objects.bulk_create([Sheet() for _ in range(count)])}


def test_workers_move_the_objects_of_all_partitions():
    made = sheets(100)
    assert lack_of(Sheet, "default") == ""
    assert {index.name for index in Sheet._meta.indexes} <= index_names(connection)
    drain(Sheet)
    assert set(Sheet.objects.filter(state="done").values_list("pk", flat=True)) == made
    assert History.objects.filter(to="done").count() == 100
    found = execute("SELECT count(DISTINCT tableoid) FROM testapp_sheet")
    assert found == [(8,)]


def test_conflicts_that_no_partition_sees_are_not_ignored():
    [pk] = sheets(1)
    for given in (Sheet(pk=pk), Sheet(pk=pk, shard=(Sheet.objects.get().shard + 1) % 32)):
        with pytest.raises(NotSupportedError, match=r"^testapp\.Sheet: bulk_create\(ignore_conflicts"):
            Sheet.objects.bulk_create([given], ignore_conflicts=True)
    assert Sheet.objects.count() == 1


def test_objects_are_grouped_and_strict_mode_refuses_writes_that_revive_a_claim():
    [pk] = sheets(1)
    assert {found.pk: found.n for found in Sheet.objects.annotate(n=Count("state"))} == {pk: 1}
    told = f"would revive an ended claim, or an earlier version, of testapp_sheet.* {pk}"
    with pytest.raises(IntegrityError, match=told):
        raw(Sheet).update(state_version=-1)
