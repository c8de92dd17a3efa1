"""``--kill``: a worker is killed for real, its files come back, and a wrong bulk move is undone."""

import io

import pytest
from django.core.management.base import OutputWrapper

from examples.codeindex import kill
from examples.codeindex.models import SourceFile
from stator.models import Action
from tests.stator.making import expire

from .conftest import Tree


@pytest.mark.django_db(transaction=True)
def test_no_file_is_lost_by_the_kill_and_the_move_is_undone(
    tree: Tree, subprocess_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        tree.write(f"module_{number}.py", f"NUMBER = {number}\n")
    tree.update()
    work = kill.work_until_rest

    def work_later(root: str) -> None:
        # In place of waiting for the end of the leases.
        held = SourceFile.objects.exclude(state_claim=None)
        assert held
        expire(*held)
        work(root)

    for name, value in subprocess_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kill, "work_until_rest", work_later)
    out = io.StringIO()
    kill.kill_and_undo(tree.root, OutputWrapper(out))
    assert set(tree.states().values()) == {"indexed"}
    assert "300 of 300 files are indexed" in out.getvalue()
    assert "300 of 300 objects went back." in out.getvalue()
    assert Action.objects.filter(kind="undo").exists()
