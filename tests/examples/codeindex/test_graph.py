"""Each handler with one file, one attempt at a time."""

import sys

import pytest

from examples.codeindex import content
from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile
from stator.exceptions import Fail

from .conftest import Tree

pytestmark = pytest.mark.django_db


def registered(tree: Tree, name: str, **columns: object) -> SourceFile:
    return SourceFile.objects.create(root=tree.root, path=name, **columns)


def hashed(tree: Tree, name: str, source: str | bytes) -> SourceFile:
    tree.write(name, source)
    file = registered(tree, name)
    assert Graph.handle_found(file) == Graph.hashed
    return file


def rejected(file: SourceFile) -> str:
    with pytest.raises(Fail) as caught:
        Graph.handle_hashed(file)
    file.refresh_from_db()
    assert file.error == str(caught.value)
    return file.error


def test_symbols_are_stored_with_what_can_be_known_of_them(tree: Tree) -> None:
    file = hashed(tree, "a.py", 'class A:\n    async def b(self):\n        """Say b."""\n')
    assert Graph.handle_hashed(file) == Graph.indexed
    stored = file.symbols.order_by("line").values_list("kind", "name", "qualified_name", "line", "summary")
    assert list(stored) == [("class", "A", "A", 1, ""), ("async method", "b", "A.b", 2, "Say b.")]
    file.refresh_from_db()
    assert (file.line_count, file.indexed_digest, file.error) == (3, file.digest, "")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"def f(:", "line 1: "),
        (b"A = 1\0", "null byte"),
        (b"A = '\xff'", "Non-UTF-8 code" if sys.version_info >= (3, 14) else "can't decode"),
        (b"# coding: no\n", "no"),
    ],
)
def test_what_does_not_parse_is_rejected_with_a_reason_and_loses_its_symbols(
    tree: Tree, source: bytes, reason: str
) -> None:
    file = hashed(tree, "a.py", "A = 1\n")
    Graph.handle_hashed(file)
    tree.write("a.py", source)
    assert Graph.handle_found(file) == Graph.hashed
    assert reason in rejected(file)
    assert (tree.symbols("a.py"), file.indexed_digest, file.line_count) == ([], "", 0)


def test_a_file_that_is_too_large_is_rejected(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_BYTES", 2_000_000)
    path = tree.write("a.py", b"#" * 2_000_001)
    with pytest.raises(Fail, match="larger than 2 MB"):
        Graph.handle_found(registered(tree, "a.py"))
    row = tree.row("a.py")
    assert (row.size, row.mtime_ns, row.digest) == (2_000_001, path.stat().st_mtime_ns, "")
