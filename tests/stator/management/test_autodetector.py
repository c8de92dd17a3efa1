"""What ``makemigrations`` writes for states that were renamed or removed."""

import re

import pytest
from django.core.management.base import CommandError
from django.db import models
from django.db.migrations import AlterField, AlterModelOptions, Migration, RenameModel
from django.db.migrations.state import ModelState, ProjectState
from django.test.utils import isolate_apps

from stator.graph import State, StateGraph
from stator.management.autodetector import StateChanges, _parts
from stator.migration_operations import RemapState, RenameState
from stator.models import StateField
from tests.projects import temporary_project

FIELD: models.Field = models.TextField()


def graph_of(names, **renames):
    states = {name: State(externally_progressed=True, renamed_from=renames.get(name)) for name in names}
    first = states[names[0]]
    first.transitions_to(*list(states.values())[1:])
    return type("DraftGraph", (StateGraph,), states)


@isolate_apps("tests.testapp")
def changes(before, graph, name="Draft"):
    """The operations that are generated for a model whose migrations have a field, and whose code has a graph."""
    states = []
    for own, field in (("Draft", before), (name, StateField(graph))):
        meta = type("Meta", (), {"app_label": "testapp"})
        model = type(own, (models.Model,), {"__module__": __name__, "Meta": meta, "state": field})
        state = ProjectState()
        state.add_model(ModelState.from_model(model))
        states.append(state)
        apps_of = model._meta.apps
        apps_of.all_models["testapp"].clear()
    found = StateChanges(*states)._detect_changes()
    return [operation for migration in found.get("testapp", []) for operation in migration.operations]


def split(*operations):
    """Whether each migration is atomic, and what is in it, after operations of one are separated."""
    migration = Migration("auto_1", "testapp")
    migration.operations, migration.dependencies = list(operations), [("auth", "0001_initial")]
    parts = list(_parts(migration))
    assert parts[-1] is migration
    assert len({part.name for part in parts}) == len(parts)
    assert all(part.dependencies == [("auth", "0001_initial")] for part in parts)
    return [(part.atomic, part.operations) for part in parts]


def recorded(*names):
    return models.CharField(
        choices=[(name, name) for name in sorted(names)], default=names[0], editable=False, max_length=100
    )


def numbered(**values):
    """The field that migrations know for states with numbers, and a graph that has them."""
    states = {name: State(value=value, externally_progressed=True) for name, value in values.items()}
    first, *others = states.values()
    first.transitions_to(*others)
    choices = sorted((value, name) for name, value in values.items())
    field = models.IntegerField(choices=choices, default=first.value, editable=False)
    return field, type("DraftGraph", (StateGraph,), states)


class TestAutodetector:
    def test_changed_number_is_written_into_the_rows_that_have_the_former_one(self):
        (before, _), (_, graph) = numbered(draft=0, public=1), numbered(draft=0, public=5)
        alter, rename = changes(before, graph)
        assert type(alter).__name__ == "AlterField"
        assert rename.deconstruct() == ("RenameState", [], {"model_name": "draft", "old": 1, "new": 5})

    def test_number_that_goes_needs_a_state_for_its_rows(self):
        (before, _), (_, graph) = numbered(draft=0, old=1, public=2), numbered(draft=0, public=2)
        _, remap = changes(before, graph)
        assert remap.deconstruct() == ("RemapState", [], {"model_name": "draft", "old": 1, "new": None})

    def test_number_that_another_state_gets_is_refused(self):
        (before, _), (_, graph) = numbered(draft=0, old=1, public=2), numbered(draft=0, old=2, public=1)
        with pytest.raises(CommandError, match=r"state: 1 was the value of old and is now that of public, so rows of "):
            changes(before, graph)

    def test_order_of_states_changes_nothing(self):
        assert changes(recorded("draft", "a", "b"), graph_of(["draft", "b", "a"])) == []

    def test_renamed_and_removed_states_follow_the_field(self):
        found = changes(recorded("draft", "public", "old"), graph_of(["draft", "shown"], shown="public"))
        assert type(found[0]).__name__ == "AlterField"
        assert {operation.deconstruct()[0]: operation.deconstruct()[2] for operation in found[1:]} == {
            "RenameState": {"model_name": "draft", "old": "public", "new": "shown"},
            "RemapState": {"model_name": "draft", "old": "old", "new": None},
        }

    def test_refusals_come_first(self):
        graph = graph_of(["draft", "shown"], shown="a")
        found = changes(recorded("draft", "a", "b"), graph)
        assert [type(operation).__name__ for operation in found] == ["AlterField", "RemapState", "RenameState"]

    def test_operations_on_rows_are_in_a_migration_that_is_not_atomic(self):
        remap, rename = RemapState("draft", "a"), RenameState("draft", "b", "c")
        state, other = AlterField("draft", "state", StateField(graph_of(["c"]))), AlterField("draft", "text", FIELD)
        before, after = RenameModel("Former", "Draft"), AlterModelOptions("draft", {})
        assert split(state, remap, rename) == [(False, [state, remap, rename])]
        assert split(before, other, state, rename, after) == [
            (True, [before, other]), (False, [state, rename]), (True, [after]),
        ]  # fmt: skip
        assert split(rename) == [(False, [rename])]
        assert split(before, other) == [(True, [before, other])]
        assert split() == [(True, [])]


MANAGED = """
from django.db import models
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

class {name}Graph(StateGraph):
{states}

class {name}(StatorModel):
    state = StateField({name}Graph)
{fields}
"""


def managed(name, *fields, **states):
    """A module with a model in whose graph the first state leads to the others; of each state its further arguments."""
    lines = [f"{state} = State(externally_progressed=True{further})" for state, further in states.items()]
    first, *others = states
    lines += [f"{first}.transitions_to({other})" for other in others]
    indented = ("\n".join(f"    {line}" for line in part) for part in (lines, fields))
    return MANAGED.format(name=name, states=next(indented), fields=next(indented))


def states_of(project):
    return dict(project.execute("SELECT state, count(*) FROM shop_page GROUP BY state"))


# As django-tenants and django-pgschemas have it: the command migrates each schema, by Django's own command.
MIGRATE = """
from django.core.management.base import BaseCommand
from django.core.management.commands.migrate import Command as Migrate
from django.db.migrations.autodetector import MigrationAutodetector


class Command(BaseCommand):
    autodetector = MigrationAutodetector

    def add_arguments(self, parser):
        Migrate.add_arguments(self, parser)

    def handle(self, *args, **options):
        Migrate(self.stdout).execute(*args, **options)
"""


def test_project_renames_and_removes_states_by_the_commands_of_another_app(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        for part in ("management", "management/commands"):
            project.write(f"shop/{part}/__init__.py", "")
        project.write("shop/management/commands/migrate.py", MIGRATE)
        project.write("shop/models.py", managed("Page", draft="", public="", archived=""))
        project.make_tables("shop")
        for state in ("draft", "public", "public", "archived"):
            project.execute("INSERT INTO shop_page (state) VALUES (?)", state)

        project.write("shop/models.py", managed("Page", writing=", renamed_from='draft'", archived=""))
        printed = project.manage("makemigrations", "shop", "-n", "fewer")
        assert "Rename the state draft of page to writing" in printed
        assert "Refuse if rows of page are in the removed state public" in printed
        refused = project.manage("migrate", "shop", code=1)
        assert "2 rows of shop.Page are in the state 'public'" in refused
        assert "Traceback" not in refused
        assert states_of(project) == {"draft": 1, "public": 2, "archived": 1}

        path = "shop/migrations/0002_fewer.py"
        edited = re.sub(r"None", "'archived'", project.read(path))
        assert edited != project.read(path)
        project.write(path, edited)
        project.manage("migrate", "shop")
        assert states_of(project) == {"writing": 1, "archived": 3}
        project.manage("makemigrations", "--check", "--dry-run")

        project.manage("migrate", "shop", "0001")
        assert states_of(project) == {"draft": 1, "archived": 3}


STATUS = """
from django.db import models

class Article(models.Model):
    status = models.CharField(max_length=20, default="draft", choices=[("draft", "Draft"), ("public", "Public")])
    kind = models.CharField(max_length=20, default="a", choices=[("a", "A")])
"""
RENAME = """
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RenameField("article", "status", "state")]
"""


def test_column_with_choices_is_not_lost_without_a_word(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", STATUS)
        project.make_tables("shop")
        project.execute("INSERT INTO shop_article (status, kind) VALUES ('public', 'a')")

        kind = 'kind = models.CharField(max_length=20, default="a", choices=[("a", "A")])'
        project.write("shop/models.py", managed("Article", kind, draft="", public=""))
        printed = project.manage("makemigrations", "--dry-run", "shop")
        assert "WARNING: shop.Article: the last of these migrations removes status. Every row begins in the" in printed
        assert "give the field its name and its values: status = StateField(ArticleGraph)" in printed

        project.write("shop/migrations/0002_state.py", RENAME)
        assert "WARNING" not in project.manage("makemigrations", "shop", "-n", "adopt")
        project.manage("migrate")
        project.manage("makemigrations", "--check", "--dry-run")
        assert project.execute("SELECT state, kind FROM shop_article") == [("public", "a")]


SENT = """
from django.db import models

class Mail(models.Model):
    sent_at = models.DateTimeField(null=True, db_index=True)
    processed = models.BooleanField(default=False)
    subject = models.CharField(max_length=20)

    class Meta:
        indexes = [models.Index(fields=["processed"], name="ix_processed")]
"""
BETWEEN = """
from django.db import migrations

def keep(apps, schema_editor):
    mails = apps.get_model("shop", "Mail").objects
    mails.filter(sent_at__isnull=False).update(state="sent", state_ready=False)

class Migration(migrations.Migration):
    dependencies = [("shop", "{before}")]
    operations = [migrations.RunPython(keep, migrations.RunPython.noop)]
"""


def test_columns_that_say_what_is_done_go_last_and_not_without_a_word(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", SENT)
        project.make_tables("shop")
        for sent in ("'2030-01-31 12:00:00'", "NULL"):
            processed = "FALSE" if sent == "NULL" else "TRUE"
            project.execute(f"INSERT INTO shop_mail (sent_at, processed, subject) VALUES ({sent}, {processed}, 'a')")

        fields = ("subject = models.CharField(max_length=30)", "tries = models.IntegerField(default=0)")
        project.write("shop/models.py", managed("Mail", *fields, waiting="", sent=""))
        printed = project.manage("makemigrations", "shop", "-n", "adopt")
        assert "WARNING: shop.Mail: the last of these migrations removes sent_at and processed. Every row" in printed
        *_, before, last = sorted(
            (path.stem for path in (tmp_path / "shop/migrations").glob("0*.py")), key=lambda name: (name[:4], name)
        )
        first = project.read(f"shop/migrations/{before}.py")
        assert "RemoveField" not in first
        assert "AddField" not in project.read(f"shop/migrations/{last}.py")

        project.write("shop/migrations/0003_between.py", BETWEEN.format(before=before))
        path = f"shop/migrations/{last}.py"
        project.write(path, project.read(path).replace(f"'{before}'", "'0003_between'"))
        project.manage("migrate")
        project.manage("makemigrations", "--check", "--dry-run")
        assert sorted(project.execute("SELECT state, count(*) FROM shop_mail GROUP BY state")) == [
            ("sent", 1),
            ("waiting", 1),
        ]
        assert {"sent_at", "processed"}.isdisjoint(project.columns("shop_mail"))
