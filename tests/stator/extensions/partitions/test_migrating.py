"""A project that puts ``PartitionByTime`` and ``Distribute`` into a migration of its own app."""

import pytest
from django.db import connection

from tests.projects import temporary_project

MODELS = """
from django.db import models
from stator.models import State, StateField, StateGraph, StatorModel

class Graph(StateGraph):
    packed = State(try_interval=60)
    sent = State()
    packed.transitions_to(sent)

    @classmethod
    def handle_packed(cls, instance):
        return cls.sent

class Parcel(StatorModel):
    state = StateField(Graph)

    class StatorMeta:
        history = True
"""

SHARD = """
    shard = models.SmallIntegerField(db_default=0)
"""

MIGRATION = """
from django.db import migrations
from stator.migration_operations import Distribute, PartitionByTime

class Migration(migrations.Migration):
    atomic = False
    dependencies = [("shop", "0002_parcel_shard"), ("stator", "0001_initial"), ("tasks", "0001_initial")]
    operations = [
        Distribute("parcel", by="shard", partitions=4),
        PartitionByTime("stator.History", "month"),
        PartitionByTime("stator.Stats", "month"),
        PartitionByTime("tasks.Run", "week"),
    ]
"""


@pytest.mark.needs("queue", "reports")
def test_a_site_goes_on_with_partitions_and_without_them_again(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop", further='INSTALLED_APPS += ["tasks"]')
        project.write("shop/models.py", MODELS)
        project.make_tables("shop")

        project.execute("INSERT INTO shop_parcel (state, state_ready) VALUES ('packed', true)")
        project.write("shop/models.py", MODELS + SHARD)
        project.manage("makemigrations", "shop", "-n", "parcel_shard")
        project.write("shop/migrations/0003_partitions.py", MIGRATION)
        assert "CANNOT BE WRITTEN AS SQL" in project.manage("sqlmigrate", "shop", "0003")
        project.manage("migrate")
        project.execute("INSERT INTO shop_parcel (shard, state, state_ready) VALUES (5, 'packed', true)")
        project.manage("runstator", "shop.Parcel", "--until-idle")
        assert "No changes" in project.manage("makemigrations", "--check", "--dry-run")
        if connection.vendor == "postgresql":
            found = project.execute("SELECT count(*) FROM pg_partitioned_table")
            assert found == [(4,)]
            assert project.execute("SELECT state FROM shop_parcel_part1") == [("sent",)]
        project.manage("migrate", "shop", "0002")
        assert project.execute("SELECT state FROM shop_parcel") == [("sent",)] * 2
        assert project.execute("SELECT count(*) FROM stator_history") == [(2,)]
