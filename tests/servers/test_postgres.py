"""The embedded PostgreSQL lets in whoever started it, and nobody else of the machine."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.servers.postgres import Server, temporary_server
from tests.servers.postgres.programs import find_programs
from tests.servers.user import as_server

pytestmark = pytest.mark.postgresql


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with temporary_server({"shared_buffers": "16MB"}) as server:
        yield server


def run_as_another_user(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return the output of psql for another user of the machine; without root, for this user without the password."""
    options: Any = as_server()
    command = [str(find_programs() / "psql"), "--no-password", "--no-psqlrc", *arguments]
    return subprocess.run(
        command, env={"PATH": os.defpath, **variables}, cwd="/", capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("host", ["tcp", "socket"])
@pytest.mark.parametrize("password", ["", "postgres"])
def test_another_local_user_gets_no_connection(server: Server, host: str, password: str) -> None:
    where = "127.0.0.1" if host == "tcp" else str(server.data_dir)
    attack = "COPY (SELECT 1) TO PROGRAM 'cat'"
    variables = {"PGPASSWORD": password} if password else {}
    done = run_as_another_user(
        "-h", where, "-p", str(server.port), "-U", "postgres", "-c", attack, "postgres", **variables
    )
    assert done.returncode == 2, done.stdout
    assert "password" in done.stderr


def test_who_started_it_is_let_in(server: Server) -> None:
    for address in (server.dsn, server.url("postgres")):
        with psycopg.connect(address) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_no_file_with_the_password_can_be_read_by_others(server: Server) -> None:
    password = urlsplit(server.url()).password
    assert password is not None
    assert server.data_dir.stat().st_mode & 0o077 == 0
    holders = [path for path in server.data_dir.iterdir() if path.is_file() and password in path.read_text("latin-1")]
    assert [path.stat().st_mode & 0o777 for path in holders] == [0o600]
