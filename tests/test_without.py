"""``bin/without``: extensions that can be deleted still can, and one that cannot is told with its reason."""

import subprocess
import sys

import pytest

from stator import signals
from tests import missing
from tests.extensions import APPS, ROOT
from tests.testapp.basic import Page
from tests.without import copied, delete, fault, groups, try_without

pytestmark = pytest.mark.once


# How many groups show what a copy for each extension would; ``bin/without`` makes those.
GROUPS = 11


@pytest.mark.parametrize("number", range(GROUPS))
def test_rest_stands_without_a_group(number):
    assert len(groups()) == GROUPS, f"with these extensions there are {len(groups())} groups: set GROUPS"
    assert try_without(*groups()[number]) == "", groups()[number]


@pytest.mark.parametrize("name", ["everything", "everything-but-the-queue", "related"])
def test_rest_stands_without_it(name):
    assert try_without(name) == ""


def test_what_the_rest_needs_is_named():
    with copied(*APPS) as folder:
        (folder / "stator" / "texts.py").unlink()
        assert "No module named 'stator.texts'" in fault(folder, ["tracing"], tests=False)


def test_lines_that_name_a_deleted_folder_go_alone(tmp_path):
    table = tmp_path / "stator" / "table.py"
    (tmp_path / "tasks").mkdir()
    table.parent.mkdir()
    table.write_text("FIRST = 1\nfrom stator.extensions.tracing import EXTENSION\nLAST = 2\n")
    delete(tmp_path, "tracing")
    assert table.read_text() == "FIRST = 1\nLAST = 2\n"


def test_share_of_another_extension_goes_alone(tmp_path):
    other = tmp_path / "stator" / "extensions" / "events"
    (tmp_path / "tasks").mkdir()
    other.mkdir(parents=True)
    (other / "tracing.py").touch()
    (other / "__init__.py").write_text('KEPT = 1\nNAMED = ("stator.extensions.events.tracing.SPANS",)\n')
    delete(tmp_path, "tracing")
    assert [(path.name, path.read_text()) for path in other.iterdir()] == [("__init__.py", "KEPT = 1\n")]


@pytest.mark.parametrize(
    ("asked", "skipped"),
    [(Page(), True), (Page.stator, True), (signals, True), (None, False), ([], False)],
    ids=["object", "queryset", "module", "None", "list"],
)
def test_only_what_ours_lack_is_missing(monkeypatch, asked, skipped):
    name = "no_such_name"
    monkeypatch.setattr(missing, "GONE", {name})
    with pytest.raises(AttributeError) as raised:
        getattr(asked, name)
    assert (missing._asked_for(raised.value) in missing.GONE) is skipped


def test_unknown_name_gets_one_line():
    command = [sys.executable, "-m", "tests.without", "tracin"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "tracin is no extension; bin/without --list names them" in done.stderr
