"""`manage.py codeindex` as people and programs use it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from examples.codeindex.models import SourceFile
from examples.codeindex.rows import rows_of
from tests.sizes import PATIENCE

from .conftest import Tree

worker = pytest.mark.django_db(transaction=True)


def run(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("codeindex", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def numbers(tree: Tree) -> dict[str, float]:
    return json.loads(run(tree.root, "--json")[0].splitlines()[-1])


def refusal(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert caught.value.returncode == 2
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


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
def test_only_what_changed_moves_from_run_to_run(tree: Tree) -> None:
    for number in range(8):
        tree.write(f"m{number}.py", f"VALUE_{number} = 1\n")
    assert numbers(tree)["moved"] == 8
    assert numbers(tree)["moved"] == 0
    tree.touch("m1.py", "m2.py", "m3.py")
    assert numbers(tree)["moved"] == 3
    tree.remove("m7.py")
    tree.write("new.py", "NEW = 1\n")
    last = numbers(tree)
    assert (last["files"], last["moved"], last["failed"]) == (8, 2, 0)
    assert numbers(tree)["moved"] == 0


@worker
def test_a_directory_that_lost_all_its_files_is_reconciled(tree: Tree) -> None:
    tree.write("a.py", "A = 1\n")
    run(tree.root)
    tree.remove("a.py")
    last = numbers(tree)
    assert (last["files"], last["moved"]) == (0, 1)


@worker
def test_files_that_did_not_come_to_rest_are_an_error(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.codeindex.management.commands.codeindex.work_until_rest", lambda root: None)
    tree.write("a.py", "A = 1\n")
    with pytest.raises(CommandError, match="1 files are not at rest") as caught:
        run(tree.root)
    assert caught.value.returncode == 1


@worker
def test_an_interruption_is_told_on_one_line(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(root: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("examples.codeindex.management.commands.codeindex.work_until_rest", interrupt)
    tree.write("a.py", "A = 1\n")
    with pytest.raises(CommandError, match="interrupted") as caught:
        run(tree.root)
    assert caught.value.returncode == 130


@worker
def test_a_link_to_a_directory_is_that_directory(tree: Tree, tmp_path: Path) -> None:
    tree.write("a.py", "A = 1\n")
    (tmp_path / "link").symlink_to(tree.path)
    run(str(tmp_path / "link"))
    assert SourceFile.objects.get().root == os.path.realpath(tree.path)


@worker
def test_a_process_of_its_own_tells_no_traceback(tree: Tree, subprocess_environment: dict[str, str]) -> None:
    def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "django", "codeindex", *arguments]
        return subprocess.run(
            command, env=subprocess_environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    tree.write("a.py", "A = 1\n")
    done = run_process(tree.root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["moved"] == 1
    done = run_process(f"{tree.root}/missing")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("", "names no directory"), ("  ", "names no directory"), ("a\0b", "names no directory")],
)
def test_a_path_that_names_nothing_is_refused(path: str, reason: str) -> None:
    assert reason in refusal(path)


def test_a_path_that_is_no_directory_is_refused(tree: Tree) -> None:
    tree.write("a.py")
    assert "no such file or directory; give a directory" in refusal(tree.root + "/missing")
    assert "not a directory" in refusal(tree.root + "/a.py")
    assert "not a directory" in refusal(tree.root + "/a.py/below")
    assert "file name too long" in refusal("x" * 300)
    assert "two\\nlines" in refusal(tree.root + "/two\nlines")


def test_a_path_that_may_not_be_read_is_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "permission denied" in refusal(tree.root)


def test_a_path_that_fits_no_column_is_refused(tree: Tree) -> None:
    deep = tree.path / ("a" * 200) / ("b" * 200)
    deep.mkdir(parents=True)
    assert "cannot be stored" in refusal(str(deep))


@pytest.mark.django_db
def test_a_directory_without_python_files_is_refused_and_leaves_nothing(tree: Tree) -> None:
    tree.write("notes.txt")
    assert "no Python files" in refusal(tree.root)
    assert rows_of(tree.root) == {}


def test_a_path_after_serve_is_refused(tree: Tree) -> None:
    assert "PATH comes before --serve" in refusal("--serve", tree.root)


def test_help_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("codeindex", "--help")
    told = capsys.readouterr().out
    assert "\n  manage.py codeindex src --json" in told
    assert '{"files": n, "moved": n, "failed": n, "seconds": s}' in told
