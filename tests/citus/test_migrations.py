"""Migrations in a distributed schema, and workers on the tables that they made."""

import pytest
from django.core.management import call_command

from stator.db.tables import lack_of
from stator.extensions.stats.models import Stats
from stator.graph.outcomes import Moved
from stator.models import StatorModel
from tests.citus.conftest import MakeDatabase, run
from tests.stator.making import claim_all, operations_of
from tests.testapp.basic import Step

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]


def migrate(alias: str) -> None:
    call_command("migrate", database=alias, verbosity=0, run_syncdb=True)


def moves_rows(alias: str) -> None:
    """Have an object moved, and counted."""
    Step.objects.using(alias).create(name="one")
    operations = operations_of(Step, alias=alias)
    [claim] = claim_all(operations)
    operations.record([(claim, Moved(operations.graph.states["done"]))])
    assert Step.objects.using(alias).get().state == "done"
    assert Stats.objects.using(alias).get().handled == 1


def test_migrations_of_this_site_run_in_a_distributed_schema(schema: str) -> None:
    migrate(schema)
    assert all(lack_of(model, schema) == "" for model in StatorModel.subclasses)
    moves_rows(schema)


def test_schema_of_a_site_that_exists_is_distributed_with_its_rows(make_database: MakeDatabase) -> None:
    alias = make_database("stator.citus", options="-c search_path=site")
    run(alias, "CREATE SCHEMA site")
    migrate(alias)
    Step.objects.using(alias).create(name="before", state="done")
    run(alias, "SELECT citus_schema_distribute('site')")
    assert lack_of(Step, alias) == ""
    Step.objects.using(alias).filter(name="before").delete()
    moves_rows(alias)
