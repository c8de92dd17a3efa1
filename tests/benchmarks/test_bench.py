"""bin/bench: which benchmarks are run, and what it says of those that are not."""

from pathlib import Path

import pytest

from benchmarks import __main__ as bench

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


def test_a_bad_name_is_told_in_one_line_and_nothing_is_run(
    ran: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["idle", "speed"]) == 2
    assert ran == []
    assert capsys.readouterr().err == f"bin/bench: 'speed' is not a benchmark; choose from {', '.join(bench.NAMES)}\n"


def test_every_module_that_measures_is_listed() -> None:
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "def main()" in path.read_text()}
    # The one of nodes needs a cluster, and pictures draws what another has measured.
    assert modules - {"nodes", "pictures"} | {"peers"} == set(bench.NAMES)
