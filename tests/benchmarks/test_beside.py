"""Comparing a revision with this tree: the table, bad arguments, and what is left behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import beside
from tests.sizes import PATIENCE

ROOT = Path(__file__).parent.parent.parent
needs_repository = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout with its history")


def started(folder: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    """The command as a process of its own, which makes its worktree in the folder."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with (folder / "told").open("w") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.beside", *arguments], cwd=ROOT, text=True,
            env={**environment, "DATABASE_URL": url, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, stderr=told,
        )  # fmt: skip


def nothing_is_left(folder: Path) -> bool:
    listed = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return str(folder) not in listed and {each.name for each in folder.iterdir()} == {"told"}


@needs_repository
@pytest.mark.postgresql
def test_both_sides_are_run_and_each_figure_has_a_line(tmp_path: Path, scratch_url: str) -> None:
    process = started(tmp_path, scratch_url, "HEAD", "create", "--pairs", "1", "--", "--objects", "10")
    printed, _ = process.communicate(timeout=8 * PATIENCE)
    told = (tmp_path / "told").read_text()
    assert process.returncode == 0, told
    assert told.splitlines() == ["create, pair 1 of 1: HEAD", "create, pair 1 of 1: here"]
    lines = [re.split(" {2,}", line) for line in printed.splitlines()]
    [cells, *_] = [cells for cells in lines if "bulk_create, managed model" in cells[0]]
    before, here, ratio = (float(cell.replace(",", "")) for cell in cells[1:4])
    assert ratio == pytest.approx(here / before, rel=0.02)
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["HEAD", "speed"], "'speed' is not a benchmark; choose from throughput, "),
        (["HEAD", "throughput", "--pairs", "0"], "--pairs must be at least 1, got 0"),
        (["no-such-branch", "throughput"], "'no-such-branch' is not a revision of this repository"),
    ],
)
def test_bad_argument_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert beside.main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"beside: {told}")


def test_ratio_above_one_is_better_whichever_way_a_figure_goes() -> None:
    before = [{"rate": (100.0, False), "ms": (10.0, True), "errors": (0.0, True)} for _ in range(3)]
    after = [
        {"rate": (rate, False), "ms": (ms, True), "errors": (0.0, True)} for rate, ms in ((110, 5), (120, 8), (90, 4))
    ]
    assert beside.line("rate", before, after) == ["rate", "100", "110", "1.100", "0.900-1.200"]
    assert beside.line("ms", before, after) == ["ms (less is better)", "10", "5", "2.000", "1.250-2.500"]
    assert beside.line("errors", before, after)[3:] == ["-", "-"]
