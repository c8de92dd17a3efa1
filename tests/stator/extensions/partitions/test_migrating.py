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

        def moved(shard=""):
            columns, values = ("shard, ", f"{shard}, ") if shard else ("", "")
            project.execute(f"INSERT INTO shop_parcel ({columns}state, state_ready) VALUES ({values}'packed', true)")
            project.manage("runstator", "shop.Parcel", "--until-idle")
            return project.execute("SELECT count(*) FROM stator_history")[0][0]

        assert moved() == 1
        project.write("shop/models.py", MODELS + SHARD)
        project.manage("makemigrations", "shop", "-n", "parcel_shard")
        project.write("shop/migrations/0003_partitions.py", MIGRATION)
        assert "CANNOT BE WRITTEN AS SQL" in project.manage("sqlmigrate", "shop", "0003")
        project.manage("migrate")
        assert moved(shard=5) == 2
        assert "No changes" in project.manage("makemigrations", "--check", "--dry-run")
        if connection.vendor == "postgresql":
            found = project.execute("SELECT count(*) FROM pg_partitioned_table")
            assert found == [(4,)]
            assert project.execute("SELECT state FROM shop_parcel_part1") == [("sent",)]
            assert "indexes: all" in project.manage("stator", "doctor")
            assert "sent 2" in project.manage("stator", "status")
        project.manage("migrate", "shop", "0002")
        assert moved() == 3
