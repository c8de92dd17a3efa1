"""A project that puts ``PartitionByTime`` into a migration of its own app."""

from django.db import connection

from tests.projects import temporary_project

MODELS = """
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

MIGRATION = """
from django.db import migrations
from stator.migration_operations import PartitionByTime

class Migration(migrations.Migration):
    atomic = False
    dependencies = [("shop", "0001_initial"), ("stator", "0001_initial"), ("tasks", "0001_initial")]
    operations = [
        PartitionByTime("stator.History", "month"),
        PartitionByTime("stator.Stats", "month"),
        PartitionByTime("tasks.Run", "week"),
    ]
"""


def test_a_site_goes_on_with_partitions_and_without_them_again(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop", further='INSTALLED_APPS += ["tasks"]')
        project.write("shop/models.py", MODELS)
        project.make_tables("shop")
        project.write("shop/migrations/0002_partitions.py", MIGRATION)

        def moved():
            project.execute("INSERT INTO shop_parcel (state, state_ready) VALUES ('packed', true)")
            project.manage("runstator", "shop.Parcel", "--until-idle")
            return project.execute("SELECT count(*) FROM stator_history")[0][0]

        assert moved() == 1
        project.manage("migrate")
        assert moved() == 2
        assert "No changes" in project.manage("makemigrations", "--check", "--dry-run")
        if connection.vendor == "postgresql":
            found = project.execute("SELECT count(*) FROM pg_partitioned_table")
            assert found == [(3,)]
        project.manage("migrate", "shop", "0001")
        assert moved() == 3
