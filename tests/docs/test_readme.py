"""What the README says works as it stands: in an empty folder, with the wheel and nothing but what it requires."""

import re
import textwrap
from pathlib import Path

import pytest

from tests.docs.following import Follower
from tests.installing import environment_with

README = (Path(__file__).resolve().parents[2] / "README.rst").read_text()
PYTHON = re.compile(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", re.MULTILINE)
LITERAL = re.compile(r"::\n\n((?:    .*\n)+)")


def example() -> str:
    return textwrap.dedent(PYTHON.findall(README)[0])


def steps() -> list[str]:
    """The blocks of the section that installs it, in order."""
    section = README.partition("Use it in a project\n---")[2].partition("If you only want Django's Tasks")[0]
    return [textwrap.dedent(block) for block in LITERAL.findall(section)]


# The README uses SQLite whatever this run uses.
@pytest.mark.sqlite
def test_its_steps_move_an_object_in_an_empty_folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    environment = environment_with(tmp_path / "environment", tmp_path_factory)
    reader = Follower(folder, environment, "shop.settings", {"pip install django-stator": ""})
    install, settings, use = steps()
    for command in install.splitlines():
        reader.run(command)
    (folder / "invoices" / "models.py").write_text(example())
    with (folder / "shop" / "settings.py").open("a") as file:
        file.write(settings)
    printed = [reader.run(command) for command in use.splitlines()]
    assert "handled=2 failed=0" in printed[-2]
    assert "Not due yet" in printed[-1]
    look = 'from invoices.models import Invoice; print([each.state for each in Invoice.objects.order_by("pk")])'
    assert "['paid', 'unpaid']" in reader.run(f"python manage.py shell -c '{look}'")
