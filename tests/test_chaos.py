"""bin/chaos: what it has bin/test run, and what it refuses."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.sizes import PATIENCE

SCRIPT = Path(__file__).parent.parent / "bin" / "chaos"
# In the place of bin/test: say what it was given, and end as the test wants.
TOLD = (
    'echo "FULL=${FULL:-} CHAOS=${CHAOS:-} SOAK=${SOAK:-} SEED=$SEED JOBS=$JOBS$PYTEST_ADDOPTS: $*"; exit "${CODE:-0}"'
)


@pytest.fixture
def chaos(tmp_path):
    """Run the script beside a bin/test that does nothing."""
    (tmp_path / "chaos").write_text(SCRIPT.read_text())
    (tmp_path / "test").write_text(f"#!/bin/sh\n{TOLD}\n")
    (tmp_path / "test").chmod(0o755)
    (tmp_path / "bin").symlink_to(tmp_path)

    def run(*arguments, **environment):
        command = ["bash", str(tmp_path / "bin" / "chaos"), *arguments]
        environment = {"PATH": os.environ["PATH"], **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)

    return run


def test_full_run_has_the_proofs_with_the_seed(chaos):
    done = chaos("--full", "--seed", "7", "-x")
    assert done.returncode == 0
    assert done.stdout == "FULL=1 CHAOS= SOAK= SEED=7 JOBS=0 -s -o faulthandler_timeout=3600: tests -m proof -x\n"
    assert "its choices are repeated by --seed 7" in done.stderr


def test_without_a_seed_each_round_has_a_new_one_and_prints_it(chaos):
    done = chaos("--rounds", "3")
    seeds = [line.partition("SEED=")[2].split()[0] for line in done.stdout.splitlines()]
    assert len(set(seeds)) == 3
    assert [f"--seed {seed}" in done.stderr for seed in seeds] == [True] * 3


TESTS = "tests/faults tests/stator/explain/test_always_true.py"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], f"FULL= CHAOS=1 SOAK= SEED=5 JOBS=0 -o faulthandler_timeout=1800: {TESTS}\n"),
        (
            ["--soak", "2", "-x"],
            f"FULL= CHAOS=1 SOAK=2 SEED=5 JOBS=0 -s -o faulthandler_timeout=1020: {TESTS} -k test_soak -x\n",
        ),
    ],
)
def test_other_runs_are_of_the_faults(chaos, arguments, told):
    assert chaos(*arguments, SEED="5").stdout == told


def test_failure_ends_it_with_its_code(chaos):
    done = chaos("--rounds", "3", CODE="1")
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "arguments", [["--seed", "x"], ["--seed"], ["--rounds", "0"], ["--soak", "-1"], ["--full", "--soak", "3"]]
)
def test_bad_arguments_are_refused_in_one_line(chaos, arguments):
    done = chaos(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
