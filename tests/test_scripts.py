"""bin/test: how it brings the programs that some tests need, and what its last lines say; .ci/run: what it runs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.sizes import PATIENCE

ROOT = Path(__file__).parent.parent
# What the scripts call themselves, beside what each test puts in the place of a machine's.
TOOLS = ("cat", "chmod", "date", "dirname", "env", "grep", "mktemp", "rm", "sed", "sh", "tail", "timeout")
PYTEST = """case "$*" in
    *pytest*) if command -v chromedriver >/dev/null; then echo 'tests in a browser: 9 passed' >"$TOLD"; fi ;;
esac"""
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
        """Run the script on this machine."""
        programs = str(self.path / "programs")
        command = ["/bin/sh", str(self.path / "bin" / "test"), *arguments]
        environment = {"PATH": programs, "BIN": programs, "DB": "sqlite", **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)

    @property
    def installed(self) -> list[str]:
        """Return the arguments that apt-get got."""
        asked = self.path / "apt"
        return asked.read_text().splitlines() if asked.exists() else []


class Integration:
    """A folder with .ci/run, beside a bin/test that only records how it was called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in (".ci", "bin", "tests"):
            (path / name).mkdir()
        (path / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text())
        (path / "tests" / "test_server.py").write_text("# postgresql")
        self.has("bin/setup", "")
        for version in ("3.11", "3.13"):
            self.has(f"bin/python{version}", "")

    def has(self, name: str, script: str) -> None:
        """There is such a program."""
        (self.path / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.path / name).chmod(0o755)

    def run(self, endings: str = "") -> tuple[int, list[tuple[str, str, str]]]:
        """Return the exit code, and the database, Django and arguments of each call; ``endings``: a shell's cases."""
        self.has(
            "bin/test", f'echo "${{DB-none}};$DJANGO;$*" >>calls\ncase "${{DB-}};$*" in {endings} *) exit 0 ;; esac'
        )
        environment = {"PATH": f"{self.path}/bin:{os.defpath}", "DB": "sqlite", "HOME": str(self.path)}
        done = subprocess.run(
            ["/bin/bash", str(self.path / ".ci" / "run")], env=environment, timeout=PATIENCE, check=False
        )
        calls = (self.path / "calls").read_text().splitlines()
        return done.returncode, [tuple(call.split(";")) for call in calls]


@pytest.fixture
def integration(tmp_path: Path) -> Integration:
    return Integration(tmp_path)


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


@pytest.mark.parametrize(
    ("programs", "install", "told"),
    [
        ("", "0", "the distribution's PostgreSQL is not installed here; as root: apt-get update && apt-get install -y"),
        ("", "1", "could not install the distribution's PostgreSQL: E: Failed to fetch the lists"),
        ("/nowhere", "1", "POSTGRESQL_PROGRAMS=/nowhere has no initdb"),
    ],
)
def test_server_of_the_distribution_that_cannot_be_had_ends_the_run(
    machine: Machine, programs: str, install: str, told: str
) -> None:
    machine.has("python", 'echo "POSTGRESQL_PROGRAMS=$POSTGRESQL_PROGRAMS has no initdb" >&2; exit 1')
    machine.has("apt-get", "echo 'E: Failed to fetch the lists' >&2; exit 100")
    done = machine.run("tests", DB="distribution", INSTALL=install, POSTGRESQL_PROGRAMS=programs)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"bin/test: {told}" in done.stderr


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("setup", "no driver of MariaDB here (see above); as root: apt-get update"),
        ("python", "MariaDB does not start here (see above)"),
    ],
)
def test_mariadb_that_cannot_be_used_ends_the_run_as_if_it_were_missing(
    machine: Machine, script: str, told: str
) -> None:
    """CI tells that by the exit code from a test that failed."""
    for name in ("mariadbd", "mariadb-tzinfo-to-sql", "gcc", "mariadb_config"):
        machine.has(name, "exit 0")
    if script == "setup":
        python = machine.path / "programs" / "python"
        (machine.path / "bin" / "setup").write_text(f"#!/bin/sh\n[ $# = 0 ] || exit 1\necho {python}\n")
    else:
        machine.has("python", 'case "$*" in *tests.servers.mariadb*) exit 2 ;; esac')
    done = machine.run("tests", DB="mariadb")
    assert (done.returncode, "tests on MariaDB" in done.stdout) == (2, False)
    assert f"bin/test: {told}" in done.stderr


def test_whole_run_tests_once_what_no_database_changes(machine: Machine) -> None:
    machine.has("python", 'case "$*" in *pytest*) echo "$*" >>"$BIN/../runs" ;; esac')
    assert machine.run(DB="", INSTALL="0").returncode == 0
    on_sqlite, on_postgresql = (machine.path / "runs").read_text().splitlines()
    assert "-m sqlite or not (once or framework)" in on_sqlite
    assert ("tests.servers.postgres" in on_postgresql, "not (once" in on_postgresql) == (True, False)
    machine.run("tests/docs", DB="")
    assert all("not (once" not in run for run in (machine.path / "runs").read_text().splitlines()[2:])
    machine.run(DB="sqlite", INSTALL="0")
    assert "not (once" not in (machine.path / "runs").read_text().splitlines()[-1]


def test_integration_calls_what_the_readme_gives_whatever_database_the_environment_names(
    integration: Integration,
) -> None:
    code, calls = integration.run()
    assert (code, calls[0]) == (0, ("none", "5.2.*", ""))
    # The golden files have what the Django of the floor compiles.
    assert calls[1] == ("mariadb", "5.2.*", "tests/golden")
    assert {django for _, django, _ in calls[2:]} == {"6.*"}
    assert {"mariadb", "citus", "sqlite", "distribution"} == {database for database, _, _ in calls[2:]}


@pytest.mark.parametrize("ending", [*('";"', "mariadb", "citus", "sqlite", "distribution")])
def test_each_leg_that_fails_fails_the_run_and_holds_up_no_other(integration: Integration, ending: str) -> None:
    pattern = ending if ending == '";"' else f'"{ending};"*'
    code, calls = integration.run(f"{pattern}) exit 1 ;;")
    assert (code, len(calls)) == (1, 6)


def test_statements_that_no_mariadb_had_are_tested_on_sqlite(integration: Integration) -> None:
    [arguments] = [arguments for database, _, arguments in integration.run()[1] if database == "sqlite"]
    assert "--ignore=tests/stator/db" in arguments
    (integration.path / "calls").unlink()
    code, calls = integration.run('"mariadb;"*) exit 2 ;;')
    [arguments] = [arguments for database, _, arguments in calls if database == "sqlite"]
    assert (code, "--ignore=tests/stator/db" in arguments) == (0, False)
