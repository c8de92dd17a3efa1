"""MySQL's programs are found, and not mistaken for those of MariaDB, which have the same names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.mysql import MySQLError
from tests.servers.mysql.server import find_program


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the programs; nothing is in it yet."""
    monkeypatch.setenv("MYSQL_PROGRAMS", str(tmp_path))
    find_program.cache_clear()
    yield tmp_path
    find_program.cache_clear()


def has(folder: Path, version: str) -> Path:
    program = folder / "mysqld"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    return program


def test_program_of_the_folder_is_taken(programs: Path) -> None:
    program = has(programs, "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))")
    assert find_program("mysqld") == str(program)


def test_program_of_mariadb_is_refused(programs: Path) -> None:
    has(programs, "mysqld  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu on x86_64 (Debian 12)")
    with pytest.raises(MySQLError, match="mysqld is MariaDB's; set MYSQL_PROGRAMS to the folder of MySQL's programs"):
        find_program("mysqld")


def test_program_that_is_missing_is_named(programs: Path) -> None:
    with pytest.raises(MySQLError, match="there is no mysql_tzinfo_to_sql here; set MYSQL_PROGRAMS"):
        find_program("mysql_tzinfo_to_sql")
