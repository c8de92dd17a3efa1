"""How Citus manages a table: what it refuses is a fault of the statement, and workers name the table and the remedy."""

import pytest
from django.db import DatabaseError, connections

from stator.db.retry import is_of_schema, is_refusal
from stator.db.tables import lack_of
from tests.citus.conftest import run
from tests.stator.making import claim_all, operations_of
from tests.testapp.basic import Step

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]

KINDS = {
    "distributed": ["SELECT create_distributed_table('testapp_step', 'id')"],
    "reference": ["SELECT create_reference_table('testapp_step')"],
    "local": [
        "CREATE TABLE customer (id bigint PRIMARY KEY)",
        "ALTER TABLE testapp_step ADD customer bigint REFERENCES customer",
        "SELECT create_reference_table('customer')",
    ],
}
SAID = {
    "distributed": "a distributed table of Citus",
    "reference": "a reference table of Citus",
    "schema": "in a distributed schema of Citus",
    "local": "a local table of Citus",
}


def create_table(alias: str) -> None:
    with connections[alias].schema_editor() as editor:
        editor.create_model(Step)


def test_ordinary_table_beside_managed_ones_lacks_nothing(citus: str) -> None:
    create_table(citus)
    run(citus, "CREATE TABLE customer (id bigint PRIMARY KEY)", "SELECT create_reference_table('customer')")
    assert lack_of(Step, citus) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_managed_table_is_named_with_the_remedy_and_its_statement_is_at_fault(citus: str, kind: str) -> None:
    create_table(citus)
    run(citus, *KINDS[kind])
    said = lack_of(Step, citus)
    assert said.startswith(f"table testapp_step of testapp.Step in database 'citus' is {SAID[kind]}, ")
    Step.objects.using(citus).create(name="one")
    with pytest.raises(DatabaseError) as caught:
        claim_all(operations_of(Step, alias=citus))
    assert is_of_schema(caught.value)
    assert not is_refusal(caught.value)


def test_table_in_a_distributed_schema_needs_the_backend_for_it(citus: str) -> None:
    run(
        citus,
        "SET citus.enable_schema_based_sharding = on",
        "CREATE SCHEMA site",
        "SET search_path = site",
    )
    create_table(citus)
    assert SAID["schema"] in lack_of(Step, citus)
    assert 'set ENGINE to "stator.citus"' in lack_of(Step, citus)
