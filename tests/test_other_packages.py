"""The examples of the page on other packages, each in a project of its own, where the package is installed."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.docs.following import blocks_of
from tests.projects import Project, temporary_project

PAGE = Path(__file__).parents[1] / "docs/how-to/other-packages.rst"

pytestmark = pytest.mark.skipif(connection.vendor == "mysql", reason="packages that are tried on the other databases")

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
            first = f"MIGRATION_MODULES = {{'shop': None}}\nINSTALLED_APPS[-1:-1] = {list(apps)}"
            project.begin("shop", further=f"{first}\n{further}")
            for block in blocks_of(PAGE):
                path, _, wanted = block.caption.partition(", with ")
                if path.endswith(".py") and wanted in ("", package):
                    project.write(path, block.text)
            # Checks the models too.
            project.manage("migrate", "--run-syncdb")
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
