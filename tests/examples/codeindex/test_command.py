"""`manage.py codeindex` as people and programs use it."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from .conftest import Tree

worker = pytest.mark.django_db(transaction=True)


def run(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("codeindex", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@worker
def test_indexes_with_a_worker_and_ends_with_a_summary(tree: Tree) -> None:
    tree.write("a.py", "A = 1\n\ndef f(): ...\n")
    tree.write("broken\x1b.py", "def f(:\n")
    out, err = run(tree.root)
    assert tree.states() == {"a.py": "indexed", "broken\x1b.py": "broken"}
    assert "2 files: indexed 1  broken 1" in out
    assert "2 symbols in 3 lines" in out
    assert "2 moved, 1 of them broken" in out
    assert "Broken: 1\n  broken\\x1b.py: line 1: " in out
    assert "--serve" in out.splitlines()[-1]
    assert err == ""


@worker
def test_json_is_the_only_line_for_programs(tree: Tree) -> None:
    tree.write("a.py", "A = 1\n")
    tree.write("b.py", "def f(:\n")
    out, err = run(tree.root, "--json")
    [line] = out.splitlines()
    result = json.loads(line)
    assert list(result) == ["files", "moved", "failed", "seconds"]
    assert (result["files"], result["moved"], result["failed"]) == (2, 2, 1)
    assert result["seconds"] > 0
    assert "2 files: " in err


@worker
def test_files_that_did_not_come_to_rest_are_an_error(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.codeindex.management.commands.codeindex.work_until_rest", lambda root: None)
    tree.write("a.py", "A = 1\n")
    with pytest.raises(CommandError, match="1 files are not at rest") as caught:
        run(tree.root)
    assert caught.value.returncode == 1
