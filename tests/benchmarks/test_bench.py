"""bin/bench: which benchmarks are run, and what it says of those that are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from tests.sizes import PATIENCE

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record what would be run; ``sets`` fails."""
    calls: list[tuple[str, list[str]]] = []

    def note(name: str, options: list[str]) -> int:
        calls.append((name, options))
        return int(name == "sets")

    monkeypatch.setattr(bench, "run", note)
    return calls


def test_all_are_run_when_none_is_named(ran: list[tuple[str, list[str]]]) -> None:
    bench.main([])
    assert ran == [(name, []) for name in bench.NAMES]


def test_those_that_are_named_are_run_in_that_order(ran: list[tuple[str, list[str]]]) -> None:
    assert bench.main(["idle", "--quick", "create"]) == 0
    assert ran == [("idle", ["--quick"]), ("create", ["--quick"])]


def test_one_that_fails_does_not_hold_up_the_others(
    ran: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["sets", "idle"]) == 1
    assert [name for name, _ in ran] == ["sets", "idle"]
    assert capsys.readouterr().err == "bin/bench: failed: sets\n"


def test_a_bad_name_is_told_in_one_line_and_nothing_is_run(
    ran: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["idle", "speed"]) == 2
    assert ran == []
    assert capsys.readouterr().err == f"bin/bench: 'speed' is not a benchmark; choose from {', '.join(bench.NAMES)}\n"


def test_the_list_tells_what_each_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(bench.NAMES)
    assert all(line.endswith(".") for line in lines)


def test_every_module_that_measures_is_listed() -> None:
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "def main()" in path.read_text()}
    # The one of nodes needs a cluster.
    assert modules - {"nodes"} | {"peers"} == set(bench.NAMES)


@pytest.mark.parametrize(("arguments", "code"), [(["--list"], 0), (["speed"], 2), (["--speed"], 2), (["--help"], 0)])
def test_the_command_makes_the_environment_and_gives_the_exit_code(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    """With this interpreter in the place of the environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    for name, text in {
        "bench": (ROOT / "bin" / "bench").read_text(),
        "setup": f"#!/bin/sh\necho {sys.executable}\n",
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    command = [tmp_path / "bin" / "bench", *arguments]
    # Not the database that the tests run on.
    environment = {**os.environ, "DB": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if arguments == ["--help"]:
        assert done.stdout.startswith("Usage: bin/bench [NAME ...]")
