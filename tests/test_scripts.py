"""bin/test: how it brings the programs that some tests need, and what its last lines say of those tests."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What the script calls itself, beside what each test puts in the place of a machine's.
TOOLS = ("cat", "chmod", "date", "dirname", "env", "mktemp", "rm", "sh", "tail", "timeout")
PYTEST = """case "$*" in
    *pytest*) if command -v chromedriver >/dev/null; then echo 'tests in a browser: 9 passed' >"$TOLD"; fi ;;
esac"""
INSTALLED = "install -y --no-install-recommends chromium chromium-driver pgbouncer faketime"
# Fetches the lists first; then there are the programs.
APT = """case $1 in
    update) ;;
    install) for name in chromium chromedriver pgbouncer faketime; do
        printf '#!/bin/sh\\n' >"$BIN/$name" && chmod +x "$BIN/$name"
    done ;;
esac
echo "$*" >>"$BIN/../apt" """


class Machine:
    """A folder of programs, and the script beside a Python that runs no test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("bin", "programs"):
            (path / name).mkdir()
        for tool in TOOLS:
            found = next(Path(folder, tool) for folder in os.defpath.split(":") if Path(folder, tool).exists())
            (path / "programs" / tool).symlink_to(found)
        self.has("python", PYTEST)
        self.has("id", "echo 0")
        (path / "bin" / "test").write_text((ROOT / "bin" / "test").read_text())
        (path / "bin" / "setup").write_text(f"#!/bin/sh\necho {path}/programs/python\n")
        (path / "bin" / "setup").chmod(0o755)

    def has(self, name: str, script: str) -> None:
        """There is such a program."""
        program = self.path / "programs" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """What the script does on this machine."""
        programs = str(self.path / "programs")
        command = ["/bin/sh", str(self.path / "bin" / "test"), *arguments]
        environment = {"PATH": programs, "BIN": programs, "DB": "sqlite", **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    @property
    def installed(self) -> list[str]:
        """What apt-get was asked for."""
        asked = self.path / "apt"
        return asked.read_text().splitlines() if asked.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_whole_run_installs_what_is_missing_and_says_that_its_tests_were_run(machine: Machine) -> None:
    machine.has("apt-get", APT)
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert machine.installed == [
        "update",
        "install -y --no-install-recommends chromium chromium-driver pgbouncer faketime",
    ]
    assert done.stdout.splitlines()[-1] == "       tests in a browser: 9 passed"
    assert machine.run().returncode == 0
    assert len(machine.installed) == 2, "what is there is not installed again"


@pytest.mark.parametrize(
    ("arguments", "wish", "asked"), [([], "0", 0), (["tests/stator"], "", 0), (["tests/stator"], "1", 2)]
)
def test_part_of_the_tests_installs_only_if_told_to(
    machine: Machine, arguments: list[str], wish: str, asked: int
) -> None:
    machine.has("apt-get", APT)
    assert machine.run(*arguments, INSTALL=wish).returncode == 0
    assert len(machine.installed) == asked


def test_run_goes_on_where_nothing_can_be_fetched(machine: Machine) -> None:
    machine.has("apt-get", "echo 'E: Failed to fetch the lists' >&2; exit 100")
    done = machine.run()
    assert done.returncode == 0
    assert "could not install them, so the tests that need them are skipped: E: Failed to fetch" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("ok     tests on SQLite")


def test_whoever_may_not_install_is_told_the_command(machine: Machine) -> None:
    machine.has("apt-get", APT)
    machine.has("id", "echo 1000")
    done = machine.run()
    assert done.returncode == 0
    assert f"as root: apt-get update && apt-get {INSTALLED}" in done.stderr
    assert machine.installed == []


def test_machine_without_apt_is_left_alone(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 0
    assert "no browser, pgbouncer or faketime here, and no apt-get to install them" in done.stderr


def test_another_wish_is_refused(machine: Machine) -> None:
    done = machine.run(INSTALL="firefox")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "INSTALL=firefox is neither 1" in done.stderr
