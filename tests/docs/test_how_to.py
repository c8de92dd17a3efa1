"""The how-to guides and concepts: models are made, examples print what the pages show, settings are ones that work."""

import ast
import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from django.apps import apps
from django.conf import settings as project
from django.core.management import CommandError, load_command_class
from django.db import connection, models
from django.test import Client
from django.test.utils import isolate_apps
from django.utils import timezone

from stator.conf import Settings
from stator.db.generated import complete
from tasks.conf import TaskSettings
from tasks.models import Queue, Task
from tests.docs.following import Block, blocks_of
from tests.stator.admin.requests import LIST, move
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True)

DOCS = Path(__file__).parents[2] / "docs"
# Pages that a reader follows from an empty folder, in test_first_hours.py.
FOLLOWED = ("adopt", "payment", "events", "from-celery")
PAGES = sorted([*(DOCS / "how-to").glob("*.rst"), *(DOCS / "concepts").glob("*.rst"), DOCS / "faq.rst"])


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in FOLLOWED], ids=lambda page: f"{page.parent.name}/{page.stem}"
)
def test_every_example_of_the_page_runs(page: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language in ("python", "pycon")]
    names: dict[str, Any] = {"__name__": "examples.codeindex.models"}
    with tables() as make:
        for number, block in enumerate(blocks):
            where = f"{page.name}, block {number}"
            if block.language == "pycon":
                run(block.text, names, where)
            elif block.caption.endswith("settings.py"):
                check_settings(block.text, where)
            elif block.caption:
                # A file that needs what a test cannot have; it is read as Python all the same.
                ast.parse(block.text, where)
            else:
                exec(compile(block.text, where, "exec"), names)
                make()


def test_every_block_of_a_page_imports_what_it_uses(tmp_path: Path) -> None:
    """Files by themselves, and what is typed into a shell after them; a handler may use what a later block declares."""
    for page in PAGES:
        blocks = [block for block in blocks_of(page) if is_whole(block)]
        files = "\n".join(block.text for block in blocks if block.language == "python")
        shell = doctest.DocTestParser().get_examples("\n".join(b.text for b in blocks if b.language == "pycon"))
        name = f"{page.parent.name}-{page.stem}"
        (tmp_path / f"{name}.py").write_text(files)
        (tmp_path / f"{name}-shell.py").write_text("\n".join([files, *(example.source for example in shell)]))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    ended = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def is_whole(block: Block) -> bool:
    """Return whether a block can be pasted as it is; settings go after those of the project."""
    return not block.caption.endswith(("settings.py", "in part")) and "shop/" not in block.caption


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_open_tasks_of_another_database_move() -> None:
    script, _ = blocks_of(DOCS / "how-to" / "queue-over-databases.rst")
    names: dict[str, Any] = {}
    exec(script.text, names)
    target = Queue.objects.create(name="encode", actions_elsewhere=True)
    Queue(name="encode", actions_elsewhere=True).save(using="other")
    there = Queue.objects.using("other").get()
    there.publish_many([{"action": "resize", "data": [number]} for number in range(101)])
    later = there.publish("resize", key="k", metadata={"title": "x"}, invisible_for=3600, worker_ids=["bot"]).task
    there.publish("resize", worker_count=2)
    there.tasks.filter(pk=later.pk).update(elsewhere_only=True)
    [held] = there.claim(worker="bot-1")
    for _ in range(2):
        names["move_open_tasks"]("encode", "other")
    assert {task.status for task in Task.objects.using("other").all()} == {"canceled"}
    assert target.tasks.filter(whole=None).count() == 103
    assert not held._claim.still_mine()
    moved = target.tasks.get(key="k")
    assert (moved.status, moved.metadata, moved.worker_ids, moved.elsewhere_only) == (
        "invisible", {"title": "x"}, ["bot"], True,
    )  # fmt: skip
    assert moved.state_next_attempt > timezone.now() + timedelta(seconds=3000)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_admin_is_read_from_the_replica_of_the_page(
    admin_client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [script] = [block for block in blocks_of(DOCS / "how-to" / "databases.rst") if "db_for_read" in block.text]
    looking = ModuleType("looking")
    exec(script.text.replace('"replica"', '"other"').replace('"shop"', '"testapp"'), looking.__dict__)
    monkeypatch.setitem(sys.modules, "looking", looking)
    settings.MIDDLEWARE = ["looking.looks", *settings.MIDDLEWARE]
    settings.DATABASE_ROUTERS = ["looking.AdminRouter"]
    here = Parcel.objects.create(address="here")
    Parcel.objects.using("other").create(pk=here.pk, address="there")
    page = admin_client.get(LIST).content.decode()
    assert ("parcel to there" in page, "parcel to here" in page) == (True, False)
    assert move(admin_client, here).status_code == 302
    assert Parcel.objects.get().state == "delivered"
    assert Parcel.objects.using("other").get().state == "packed"


COMMAND = re.compile(r"^ +\$ python manage\.py ((?:stator|tasks|runstator) .*?)(?:\s+#.*)?$", re.MULTILINE)


def test_commands_take_the_arguments_that_pages_give_them(capsys: pytest.CaptureFixture[str]) -> None:
    refused = {}
    for command in {command for page in DOCS.rglob("*.rst") for command in COMMAND.findall(page.read_text())}:
        name, *arguments = shlex.split(command)
        parser = load_command_class("tasks" if name == "tasks" else "stator", name).create_parser("manage.py", name)
        try:
            parser.parse_args(arguments)
        except (CommandError, SystemExit) as error:
            refused[command] = f"{error} {capsys.readouterr().err}"
    assert refused == {}


@contextmanager
def tables() -> Iterator[Any]:
    """Yield a function that makes the tables of models that were declared since; all are dropped at the end."""
    made: list[type[models.Model]] = []
    with isolate_apps("examples.codeindex") as isolated:

        def make() -> None:
            new = [model for model in isolated.get_models() if model not in made and model._meta.managed]
            with connection.schema_editor() as editor:
                for model in new:
                    editor.create_model(model)
                    made.append(model)
            for model in new:
                # As migrate does it.
                complete(model, "default")

        try:
            yield make
        finally:
            with connection.schema_editor() as editor:
                for model in reversed(made):
                    editor.delete_model(model)


def run(text: str, names: dict[str, Any], where: str) -> None:
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    # Examples of one page share their names, as those of one shell do.
    examples = doctest.DocTestParser().get_doctest(text, names, where, None, 0)
    runner.run(examples, out=printed.append, clear_globs=False)
    names.update(examples.globs)
    assert runner.tries, where
    assert not runner.failures, "".join(printed)


def check_settings(text: str, where: str) -> None:
    """Run the settings of a page after those of an empty project; our own must be ones that work."""
    given: dict[str, Any] = {"INSTALLED_APPS": [], "DATABASES": {"default": {}}, "LOGGING": {}}
    exec(compile(text, where, "exec"), given)
    for settings in (Settings, TaskSettings):
        values = given.get(settings.NAME, {})
        assert set(values) <= {*vars(settings())}, where
        with patch.dict(project.DATABASES, given["DATABASES"]):
            assert list(settings(**settings.completed(values)).problems()) == [], where
    assert apps.ready
