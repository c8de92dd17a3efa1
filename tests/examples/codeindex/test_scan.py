"""Which files a scan finds, and what it leaves out."""

import os
from pathlib import Path

import pytest

from examples.codeindex import scan as module
from examples.codeindex.content import fingerprint_of
from examples.codeindex.scan import MAX_PATH, Scan, scan


def plant(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def found(root: Path) -> set[str]:
    return set(scan(str(root)).files)


def test_finds_python_files_at_any_depth_with_their_fingerprints(tmp_path: Path) -> None:
    plant(tmp_path, "a.py", "b/c/d.py", "notes.txt", "b/compiled.pyc", "template.py-tpl")
    files = scan(str(tmp_path)).files
    assert files == {path: fingerprint_of(tmp_path / path) for path in ("a.py", "b/c/d.py")}


def test_leaves_out_hidden_directories_and_caches(tmp_path: Path) -> None:
    plant(tmp_path, ".git/a.py", "b/.venv/c.py", "b/__pycache__/d.py", ".hidden.py", "e.py/f.py")
    assert found(tmp_path) == {".hidden.py", "e.py/f.py"}


def test_follows_links_to_files_and_never_links_to_directories(tmp_path: Path) -> None:
    plant(tmp_path, "real/a.py")
    (tmp_path / "linked.py").symlink_to("real/a.py")
    (tmp_path / "real/up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to("real")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "nowhere.py").symlink_to("missing")
    assert found(tmp_path) == {"real/a.py", "linked.py"}


def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert found(tmp_path) == set()


@pytest.mark.parametrize("name", [b"\xff.py", b"\xfe/a.py"])
def test_names_that_are_no_text_are_told_apart(tmp_path: Path, name: bytes) -> None:
    try:
        plant(tmp_path, "a.py", os.fsdecode(name))
    except OSError:
        pytest.skip("this file system has no such names")
    result = scan(str(tmp_path))
    assert set(result.files) == {"a.py"}
    assert result.unnameable == [os.fsdecode(name)]


def test_a_path_that_fits_no_column_is_told_apart(tmp_path: Path) -> None:
    directory = "d" * 200
    plant(tmp_path, f"{directory}/{'e' * (MAX_PATH - 204)}.py", f"{directory}/{'f' * (MAX_PATH - 203)}.py")
    result = scan(str(tmp_path))
    assert [len(path) for path in result.files] == [MAX_PATH]
    assert [len(path) for path in result.unnameable] == [MAX_PATH + 1]


def test_a_directory_that_cannot_be_listed_covers_nothing_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, "a.py", "closed/b.py", "removed/c.py")
    listed = module.os.scandir

    def refuse(path: Path) -> object:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied")
        if path.name == "removed":
            raise FileNotFoundError(2, "No such file or directory")
        return listed(path)

    monkeypatch.setattr(module.os, "scandir", refuse)
    result = scan(str(tmp_path))
    assert set(result.files) == {"a.py"}
    assert result.unlisted == ["closed"]
    assert not result.covers("closed/b.py")
    assert result.covers("removed/c.py")


def test_only_what_is_below_an_unlisted_directory_is_not_covered() -> None:
    result = Scan(unlisted=["a/b"])
    assert [result.covers(path) for path in ("a/b/c.py", "a/bc.py", "a/b.py")] == [False, True, True]


def test_a_root_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scan(str(tmp_path / "missing"))
