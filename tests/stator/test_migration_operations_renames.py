"""A model is renamed, or moves to another app: what was recorded of it stays with it."""

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone

from stator.migration_operations import RenameRecords, RenameState
from stator.models import Depth, History, Limit, Pause, Report, Stats
from tests.projects import temporary_project
from tests.stator.dividing import migrate

NOW = timezone.now().replace(minute=0, second=0, microsecond=0)


def record(label, number=1):
    Pause.objects.create(model_label=label, reason=f"{number}")
    Pause.objects.create(model_label=label, reason=f"{number}", until=NOW)
    History.objects.create(model_label=label, object_pk="7", version=1, source="a")
    Report.objects.create(model_label=label, object_pk="7", state="a", message=f"{number}")
    Stats.objects.create(model_label=label, hour=NOW, source="a", handled=number)
    Depth.objects.create(model_label=label, minute=NOW, queued=number)
    Limit.objects.create(model_label=label, state="a")


def labels():
    return {label for model in (Pause, History, Report, Stats, Depth, Limit)
            for label in model.objects.values_list("model_label", flat=True)}  # fmt: skip


@pytest.mark.django_db
class TestRecords:
    def test_every_record_gets_the_new_label_and_the_former_one_back(self):
        record("shop.invoice")
        record("shop.other")
        migrate(RenameRecords("shop.Invoice", "billing.Bill"))
        assert labels() == {"billing.bill", "shop.other"}
        migrate(RenameRecords("shop.Invoice", "billing.Bill"), backwards=True)
        assert labels() == {"shop.invoice", "shop.other"}
        assert Pause.objects.filter(model_label="shop.invoice").active().count() == 1

    def test_records_of_a_former_model_give_way(self):
        record("shop.bill", number=2)
        record("shop.invoice", number=1)
        migrate(RenameRecords("shop.Invoice", "shop.Bill"))
        assert labels() == {"shop.bill"}
        assert (Report.objects.get().message, Stats.objects.get().handled, Depth.objects.get().queued) == ("1", 1, 1)
        migrate(RenameRecords("shop.Invoice", "shop.Bill"))
        assert Report.objects.count() == 1

    def test_workers_that_run_notice_the_pause(self):
        """They look for a change of the number and sum of the ids of pauses."""
        before = Pause.objects.create(model_label="testapp.step", state="older", where={"name": "a"}, actor="ada")
        migrate(RenameState("step", "older", "new"))
        after = Pause.objects.get()
        assert after.pk != before.pk
        assert (after.state, after.where, after.actor) == ("new", {"name": "a"}, "ada")
        migrate(RenameRecords("testapp.Step", "testapp.Stair"))
        assert Pause.objects.get().pk != after.pk

    def test_permission_to_force_moves_keeps_its_grants(self):
        kind = ContentType.objects.create(app_label="shop", model="invoice")
        permission = Permission.objects.create(content_type=kind, codename="force_invoice", name="Can force invoice")
        migrate(RenameRecords("shop.Invoice", "shop.Bill"))
        permission.refresh_from_db()
        assert permission.codename == "force_bill"

    def test_wrong_label_is_one_line(self):
        with pytest.raises(ValueError, match=r"'Invoice' is not a label such as 'shop\.Invoice'"):
            RenameRecords("Invoice", "billing.Invoice")


CODE = """
from django.db import models
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

class PageGraph(StateGraph):
    draft = State(try_interval=60)
    public = State()
    draft.transitions_to(public)

    @classmethod
    def handle_draft(cls, page):
        return cls.public

class {name}(StatorModel):
    state = StateField(PageGraph)
    {field} = models.CharField(max_length=20, default="a")

    class StatorMeta:
        history = True
        reconcile_on = ["{field}"]
"""
SAVE = "from shop.models import Sheet; s = Sheet.objects.get(); s.name = 'b'; s.save(); print(s.explain()[0].code)"
RENAMES = """
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RenameModel("Page", "Sheet"), migrations.RenameField("Sheet", "title", "name")]
"""


@pytest.mark.needs("pauses", "problems", "reconcile", "reports", "stats")
def test_project_renames_a_model_and_a_watched_field(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", CODE.format(name="Page", field="title"))
        project.make_tables("shop")
        project.manage("shell", "-c", "from shop.models import Page; Page.objects.create()")
        project.manage("runstator", "--until-idle")
        project.manage("stator", "pause", "shop.Page", "--reason", "checks")

        project.write("shop/models.py", CODE.format(name="Sheet", field="name"))
        project.write("shop/migrations/0002_renames.py", RENAMES)
        # The names of the mixin's indexes come from that of the table.
        project.manage("makemigrations", "shop", "-n", "rest")
        project.manage("migrate")
        project.manage("makemigrations", "--check", "--dry-run")
        assert project.execute("SELECT model_label, reason FROM stator_pause") == [("shop.sheet", "checks")]
        assert project.execute("SELECT model_label, source FROM stator_history") == [("shop.sheet", "draft")]
        assert project.execute("SELECT DISTINCT model_label FROM stator_stats") == [("shop.sheet",)]
        assert project.manage("shell", "-c", SAVE).splitlines()[-1] == "paused"

        project.manage("migrate", "shop", "0001")
        assert project.execute("SELECT model_label, reason FROM stator_pause") == [("shop.page", "checks")]
