"""The worker goes on until all files are at rest, and waits only for what will come."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from examples.codeindex import work as module
from examples.codeindex.graph import LEASE
from examples.codeindex.models import SourceFile
from examples.codeindex.reconcile import reconcile
from examples.codeindex.scan import scan
from examples.codeindex.work import work_until_rest
from stator.conf import load_settings

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


def test_takes_over_the_files_of_a_worker_that_died(registered: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    write("a.py", state_ready=False, state_claim=uuid4(), state_locked_until=now + timedelta(seconds=LEASE))
    pauses = []

    def lease_runs_out(seconds: float) -> None:
        pauses.append(seconds)
        write("a.py", state_locked_until=now - timedelta(seconds=1))

    monkeypatch.setattr(module, "sleep", lease_runs_out)
    work_until_rest(registered.root)
    assert registered.states() == {"a.py": "indexed", "b.py": "indexed"}
    assert pauses


def test_does_not_wait_for_files_in_quarantine(registered: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", state_ready=False, state_crashes=load_settings().MAX_CRASHES)
    monkeypatch.setattr(module, "sleep", lambda seconds: pytest.fail("waited"))
    work_until_rest(registered.root)
    assert registered.states() == {"a.py": "found", "b.py": "indexed"}


def test_ends_when_the_worker_was_told_to_stop(registered: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.StatorRunner, "run", lambda self: None)
    monkeypatch.setattr(module, "sleep", lambda seconds: pytest.fail("waited"))
    work_until_rest(registered.root)
    assert registered.states() == {"a.py": "found", "b.py": "found"}
