"""Operations of migrations on tables: storage parameters."""

from functools import partial

import pytest
from django.db import connection
from django.db.migrations.writer import OperationWriter

from stator.migration_operations import Distribute, PartitionByTime, StorageParameters
from stator.strict_fence import StrictFence
from tests.stator.dividing import SHARD, Tables, migrate, parcel, whole_project
from tests.testapp.power import Site

pytestmark = pytest.mark.django_db


def sql(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else None


def storage(name=Site._meta.db_table):
    rows = sql("SELECT unnest(coalesce(reloptions, '{}')) FROM pg_class WHERE relname = %s", name)
    return {text for (text,) in rows}


@pytest.mark.postgresql
def test_storage_parameters_of_a_table_and_the_index_of_its_key_are_set_and_put_back():
    key = f"{Site._meta.db_table}_pkey"
    given = {"fillfactor": 50, "autovacuum_enabled": True, "toast.autovacuum_enabled": False}
    both = StorageParameters("Site", given, key={"fillfactor": 60})
    migrate(both)
    assert (storage(), storage(key)) == ({"fillfactor=50", "autovacuum_enabled=true"}, {"fillfactor=60"})
    migrate(StorageParameters("Site", {"fillfactor": 70, "autovacuum_enabled": None}, key={"fillfactor": None}))
    assert (storage(), storage(key)) == ({"fillfactor=70"}, set())
    migrate(both)
    migrate(both, backwards=True)
    assert (storage(), storage(key)) == (set(), set())


DIVIDE = Distribute("parcel", by="shard", partitions=4)
WRITTEN = {
    "Set fillfactor, autovacuum_enabled of the table of Site": StorageParameters(
        "Site", {"fillfactor": 50, "autovacuum_enabled": None}, key={"fillfactor": 60}
    ),
    "Divide the table of stator.History by time, a partition for each month": PartitionByTime(
        "stator.History", "month"
    ),
    "Refuse raw writes that revive an ended claim of Line": StrictFence("Line"),
    "Divide the table of parcel by shard over 4 partitions": DIVIDE,
}


def test_operations_are_written_into_a_migration():
    for described, operation in WRITTEN.items():
        text, imports = OperationWriter(operation, indentation=0).serialize()
        given = {}
        exec("\n".join([*imports, f"operation = {text.rstrip(',')}"]), given)
        assert given["operation"].deconstruct() == operation.deconstruct()
        assert operation.describe() == described
        assert operation.migration_name_fragment.isidentifier()


@pytest.mark.django_db(transaction=True)
def test_table_is_an_ordinary_one_where_it_cannot_be_divided():
    if connection.vendor == "postgresql":
        pytest.skip("for the others")
    tables = Tables()
    tables.migrate(parcel(shard=SHARD), DIVIDE)
    assert tables.add(2, shard=7)
    for _ in range(2):
        tables.back()


@pytest.mark.parametrize("operation", [*WRITTEN.values()][:3], ids=lambda value: type(value).__name__)
def test_operation_concerns_no_other_database(operation, django_assert_max_num_queries):
    if connection.vendor == "postgresql":
        pytest.skip("for the others")
    whole_project()
    with django_assert_max_num_queries(0):
        migrate(operation)
        migrate(operation, backwards=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(StorageParameters, "Site", {}), "give at least one parameter"),
        (partial(StorageParameters, "Site", {"fillfactor": "50"}), "'fillfactor': '50' is not a name with a number"),
        (partial(StorageParameters, "Site", {"fillfactor = 50) --": 1}), "is not a name with a number"),
        (partial(PartitionByTime, "History", "month"), "not a label such as stator.History"),
        (partial(PartitionByTime, "stator.History", "hour"), "day, week, month"),
        *(
            (partial(Distribute, "parcel", by="shard", partitions=number), "partitions must be from 2 to 32")
            for number in (1, 33, "8")
        ),
    ],
)
def test_operation_without_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
