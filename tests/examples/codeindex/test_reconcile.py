"""The index follows the disk: what changed moves, and nothing else."""

import pytest

from examples.codeindex.models import SourceFile
from examples.codeindex.reconcile import reconcile
from examples.codeindex.rows import rows_of
from examples.codeindex.scan import scan
from stator.models import History

from .conftest import Tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def indexed(tree: Tree) -> Tree:
    """Ten files, one of them broken, at rest."""
    for number in range(9):
        tree.write(f"package/m{number}.py", f"VALUE_{number} = 1\n")
    tree.write("broken.py", "def f(:\n")
    tree.update()
    return tree


def test_nothing_moves_twice(indexed: Tree) -> None:
    outcome = indexed.update()
    assert (outcome.files, outcome.moved, outcome.failed) == (10, 0, 0)
    assert outcome.states == {"indexed": 9, "broken": 1}


def test_three_touched_files_are_three_that_move(indexed: Tree) -> None:
    indexed.touch("package/m1.py", "package/m2.py", "package/m3.py")
    before, symbol = rows_of(indexed.root), indexed.row("package/m1.py").symbols.get()
    assert indexed.update().moved == 3
    after = rows_of(indexed.root)
    moved = {path for path in after if before[path] != after[path]}
    assert moved == {"package/m1.py", "package/m2.py", "package/m3.py"}
    assert indexed.row("package/m1.py").symbols.get() == symbol
    acts = History.objects.filter(kind=History.Kind.HAND).values_list("source", "to", "actor", "reason")
    assert list(acts) == [("indexed", "found", "codeindex", "the file changed")] * 3
    assert indexed.update().moved == 0


def test_a_removed_file_vanishes_with_its_symbols_once_and_may_come_back(indexed: Tree) -> None:
    indexed.remove("package/m1.py")
    outcome = indexed.update()
    assert (outcome.files, outcome.moved, outcome.failed) == (9, 1, 0)
    assert indexed.states()["package/m1.py"] == "forgotten"
    assert indexed.symbols("package/m1.py") == []
    assert indexed.update().moved == 0
    indexed.write("package/m1.py", "BACK = 1\n")
    assert indexed.update().moved == 1
    assert indexed.symbols("package/m1.py") == ["BACK"]


def test_files_below_a_directory_that_cannot_be_listed_stay(indexed: Tree) -> None:
    result = scan(indexed.root)
    for path in [path for path in result.files if path.startswith("package/")]:
        del result.files[path]
    result.unlisted.append("package")
    reconcile(indexed.root, result)
    assert set(indexed.states().values()) == {"indexed", "broken"}


def test_two_scans_at_once_register_each_file_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("a.py", "A = 1\n")
    reconcile(tree.root, scan(tree.root))
    monkeypatch.setattr("examples.codeindex.reconcile.rows_of", lambda root: {})
    reconcile(tree.root, scan(tree.root))
    assert SourceFile.objects.count() == 1
