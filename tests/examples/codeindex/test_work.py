"""The worker goes on until all files are at rest, and waits only for what will come."""

from typing import Any

import pytest
from django.db.models import QuerySet

from examples.codeindex.models import SourceFile
from examples.codeindex.reconcile import reconcile
from examples.codeindex.scan import scan
from examples.codeindex.work import work_until_rest

from .conftest import Tree

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def registered(tree: Tree) -> Tree:
    tree.write("a.py", "A = 1\n")
    tree.write("b.py", "B = 1\n")
    reconcile(tree.root, scan(tree.root))
    return tree


def write(name: str, **columns: Any) -> None:
    """Write columns past the guard, as only the framework and time can."""
    QuerySet(SourceFile).filter(path=name).update(**columns)


def test_ends_when_all_files_are_at_rest(registered: Tree) -> None:
    work_until_rest(registered.root)
    assert registered.states() == {"a.py": "indexed", "b.py": "indexed"}
