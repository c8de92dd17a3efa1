"""One file on the disk: has it changed, what is in it, and can it be used at all."""

import os
from pathlib import Path

import pytest

from examples.codeindex import content
from examples.codeindex.content import Fingerprint, Gone, Unusable, digest_of, fingerprint_of, lines_in, read


def test_fingerprint_changes_with_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("A = 1\n")
    os.utime(path, ns=(5, 5))
    assert fingerprint_of(path) == Fingerprint(6, 5)
    os.utime(path, ns=(6, 6))
    assert fingerprint_of(path) == Fingerprint(6, 6)


def test_a_time_that_no_column_can_hold_is_bounded(tmp_path: Path) -> None:
    status = os.stat_result((0o100644, 0, 0, 1, 0, 0, 3, 0, 0, 0), {"st_mtime_ns": 10**20})
    assert content._modified(status) == 2**63 - 1


def test_what_is_no_regular_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "nowhere.py").symlink_to("missing")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe.py")
    for name in ("missing.py", "loop.py", "nowhere.py", "pipe.py", "file/below.py", "."):
        with pytest.raises(Gone):
            fingerprint_of(tmp_path / name)


def test_a_file_that_is_removed_before_it_is_read_is_gone(tmp_path: Path) -> None:
    for name in ("missing.py", "."):
        with pytest.raises(Gone):
            read(tmp_path / name)


def test_permission_that_is_missing_shows_in_fingerprint_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.py"
    path.touch()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.access", lambda *args: False)
    assert fingerprint_of(path) == Fingerprint(0, None)
    # Whoever runs the tests as root may read everything.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(Unusable, match="not readable: Permission denied"):
        read(path)
    monkeypatch.setattr(Path, "stat", refuse)
    assert fingerprint_of(path) == Fingerprint(0, None)


def test_a_file_may_be_as_large_as_the_limit_and_no_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_BYTES", 3_000_000)
    path = tmp_path / "large.py"
    path.write_bytes(b"#" * 3_000_000)
    assert len(read(path)) == 3_000_000
    path.write_bytes(b"#" * 3_000_001)
    with pytest.raises(Unusable, match="larger than 3 MB"):
        read(path)


def test_equal_content_has_an_equal_digest_that_fits_its_column() -> None:
    assert digest_of(b"x") == digest_of(b"x") != digest_of(b"y")
    assert len(digest_of(b"x")) == 64


@pytest.mark.parametrize(("source", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\r\nb\rc\n\n", 4)])
def test_lines_are_counted_however_they_end(source: bytes, lines: int) -> None:
    assert lines_in(source) == lines
