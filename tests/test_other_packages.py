"""The examples of the page on other packages, each in a project of its own, where the package is installed."""

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from tests.docs.following import blocks_of
from tests.projects import Project, temporary_project

PAGE = Path(__file__).parents[1] / "docs/how-to/other-packages.rst"

# What the packages do does not depend on the database.
pytestmark = pytest.mark.sqlite

Script = Callable[..., str]


@pytest.fixture
def project_with(tmp_path: Path) -> Any:
    """Makes the project of the page's section on a package, and a function that runs a script in it."""

    @contextmanager
    def made(package: str, *apps: str, further: str = "") -> Iterator[Script]:
        try:
            version(package)
        except PackageNotFoundError:
            pytest.skip(f"needs {package}")
        with temporary_project(tmp_path) as project:
            project.begin("shop", further=f"INSTALLED_APPS[-1:-1] = {list(apps)}\n{further}")
            commands = []
            for block in blocks_of(PAGE):
                path, _, wanted = block.caption.partition(", with ")
                if path.startswith("shop/") and wanted in ("", package):
                    project.write(path, block.text)
                elif wanted == package:
                    commands += [command for command, _ in block.commands()]
            project.make_tables("shop")
            for command in commands:
                project.manage(*shlex.split(command.removeprefix("python manage.py ")))
            yield lambda text: script(project, text)

    return made


def script(project: Project, text: str) -> str:
    """Run statements as ``manage.py shell`` would; return what they print."""
    lines = re.sub(r"^ {8}", "", text.strip("\n"), flags=re.MULTILINE)
    project.write("script.py", f"from shop.models import *\nfrom stator.testing import drain\n{lines}")
    return project.manage("shell", "-c", "import script")


def test_simple_history_records_saves_and_copies_plain_columns(project_with):
    with project_with("django-simple-history", "simple_history") as run:
        run("""
        from django.db import models
        invoice = Invoice.objects.create(title="a")
        invoice.title = "b"
        invoice.save()
        assert drain(Invoice) == 1
        assert invoice.history.count() == 2
        kinds = {type(field).__module__ for field in Invoice.history.model._meta.concrete_fields}
        assert kinds == {"django.db.models.fields", "django.db.models.fields.related"}, kinds
        old = invoice.history.earliest()
        assert (old.state, old.title) == ("unpaid", "a")
        old.instance.save()
        invoice.refresh_from_db()
        assert (invoice.state, invoice.title) == ("paid", "a")
        invoice.transition_perform(old.state)
        assert drain(Invoice) == 1
        """)


def test_lifecycle_runs_its_hooks_at_saves(project_with):
    with project_with("django-lifecycle") as run:
        run("""Invoice.objects.create(title="a")""")
        # Looks through the attributes of the class when the first object of the process is loaded.
        run("""
        assert Invoice.objects.get().title == "a"
        invoice = Invoice.objects.create(title="b")
        invoice.state = "paid"
        invoice.save()
        assert drain(Invoice) == 1
        assert list(Invoice.objects.order_by("pk").values_list("state", "thanks")) == [("paid", 0), ("paid", 1)]
        """)


def test_modeltranslation_translates_guarded_managers(project_with):
    languages = "LANGUAGES = [('en', 'English'), ('de', 'German')]\nLANGUAGE_CODE = 'en'"
    with project_with("django-modeltranslation", "modeltranslation", further=languages) as run:
        run("""
        import pickle
        from django.utils import translation
        from stator.exceptions import ProtectedColumn
        invoice = Invoice.objects.create(title="a", title_de="A")
        assert drain(Invoice) == 1
        invoice.refresh_from_db(None, ["title", "state"], None)
        with translation.override("de"):
            assert Invoice.objects.get(title="A").title == invoice.title == "A"
        assert list(pickle.loads(pickle.dumps(Invoice.objects.all()))) == [invoice]
        try:
            Invoice.objects.update(state_ready=True)
        except ProtectedColumn:
            invoice.state = "unpaid"
            invoice.save()
        assert drain(Invoice) == 1
        """)


def test_rest_framework_moves_objects_and_refuses_bad_states(project_with):
    with project_with("djangorestframework", "rest_framework") as run:
        run("""
        from rest_framework import serializers
        from shop.serializers import InvoiceSerializer
        invoice = Invoice.objects.create(title="a")

        def patched(state):
            serializer = InvoiceSerializer(invoice, data={"state": state}, partial=True)
            try:
                serializer.is_valid(raise_exception=True)
                serializer.save()
            except serializers.ValidationError as refused:
                assert refused.status_code == 400
                return str(refused.detail["state"][0])
            return Invoice.objects.get().state

        assert patched("nowhere") == '"nowhere" is not a valid choice.'
        assert patched("sealed").startswith("InvoiceGraph.sealed can be entered only by the framework")
        assert patched("paid") == "paid"
        """)


def test_ninja_moves_objects_and_refuses_bad_states(project_with):
    with project_with("django-ninja") as run:
        run("""
        from ninja.testing import TestClient
        from shop.api import api
        Invoice.objects.create(title="a")

        def patched(**values):
            answer = TestClient(api).patch("/invoices/1", json=values)
            return answer.status_code, Invoice.objects.get().state

        assert patched(state="nowhere") == (422, "unpaid")
        assert patched(state="sealed") == (422, "unpaid")
        assert patched(title="b") == (200, "unpaid")
        assert patched(state="paid") == (200, "paid")
        """)


def test_bakery_makes_objects_with_all_optional_values(project_with):
    with project_with("model-bakery") as run:
        run("""
        from model_bakery import baker
        baker.make(Invoice, _fill_optional=True)
        baker.make(Invoice, _fill_optional=True, _quantity=2, _bulk_create=True)
        baker.make(Invoice, _fill_optional=["state_claim", "state_locked_until"], state="paid")
        assert (Invoice.stator.leased().count(), drain(Invoice)) == (0, 3)
        """)


def test_softly_deleted_objects_are_left_alone_until_they_are_restored(project_with):
    with project_with("django-safedelete", "safedelete") as run:
        run("""
        hidden, shown = Invoice.objects.create(title="a"), Invoice.objects.create(title="b")
        hidden.delete()
        assert (Invoice.objects.count(), Invoice.stator.count()) == (1, 2)
        assert drain(Invoice) == 1
        hidden.undelete()
        assert drain(Invoice) == 1
        """)


def test_polymorphic_children_are_handled_as_their_parents(project_with):
    silenced = "SILENCED_SYSTEM_CHECKS = ['stator.W104']"
    with project_with("django-polymorphic", "polymorphic", further=silenced) as run:
        run("""
        Invoice.objects.create()
        subscription = Subscription.objects.create()
        assert [type(found) for found in Invoice.stator.order_by("pk")] == [Invoice, Invoice]
        assert drain(Invoice) == 2
        assert list(Invoice.objects.order_by("pk").values_list("state", "collected")) == [
            ("paid", "Invoice"),
            ("paid", "Subscription"),
        ]
        found = Invoice.objects.get(pk=subscription.pk)
        assert type(found) is Subscription
        found.state = "unpaid"
        found.save()
        assert Subscription.objects.get().state == "unpaid"
        """)


def test_zeal_finds_no_repeated_queries_in_our_code(project_with):
    backend = {"BACKEND": "tasks.backend.StatorBackend", "OPTIONS": {"modules": ["script"]}}
    further = f"ZEAL_RAISE = True\nTASKS = {{'default': {backend}}}"
    with project_with("django-zeal", "zeal", "tasks", further=further) as run:
        run("""
        import zeal
        from tasks import action, periodic
        from tasks.models import Queue, Task
        from django.core.management import call_command
        from django.db import transaction
        try:
            from django.tasks import task
        except ImportError:
            from django_tasks import task

        @periodic(every=60)
        def first(): pass
        @periodic(every=60)
        def second(): pass
        @task
        def remind(number): pass
        @action("count", queue="numbers")
        def count(): pass

        queue = Queue.objects.create(name="numbers")
        # As in a test case.
        with zeal.zeal_context(), transaction.atomic():
            for title in "abc":
                Invoice.objects.create(title=title)
                assert drain() >= 1
            for invoice in list(Invoice.stator.all()):
                assert invoice.explain()[0].code == "terminal"
                invoice.transition_perform("unpaid", actor="anna")
                assert invoice.stator.due(60, actor="anna")
                invoice.state = "paid"
                invoice.save()
                invoice.transition_perform("unpaid")
            for number in range(3):
                queue.publish("count", key=str(number))
                queue.publish("count", key=str(number), update=True, priority=number)
                remind.enqueue(number)
            assert drain() >= 9
            for each in Task.objects.all():
                assert each.status == "completed", each.explain()
            call_command("stator", "status")
            call_command("tasks", "queues")
        """)
