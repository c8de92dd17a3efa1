"""The embedded MariaDB or MySQL lets in whoever started it, and leaves nothing behind."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.projects import is_mariadb
from tests.servers import mariadb, mysql
from tests.servers.mariadb import Server
from tests.servers.user import ServerError, as_server

pytestmark = pytest.mark.mariadb


def temporary_server() -> AbstractContextManager[Server]:
    return (mariadb if is_mariadb() else mysql).temporary_server({"innodb_buffer_pool_size": "16M"})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


def test_who_started_it_is_let_in(server: Server) -> None:
    assert server.execute("SELECT DATABASE(), 1") == "NULL\t1\n"
    assert type(server)(server.data_dir).url() == server.url()


@pytest.mark.parametrize("user", ["root", "stator", ""])
def test_another_local_user_gets_no_connection(server: Server, user: str) -> None:
    command = [server.find(server.client_program), "--no-defaults", "--host=127.0.0.1", f"--port={server.port}"]
    command += [f"--user={user}"]
    options: Any = {"env": {"PATH": os.defpath}, "cwd": "/", **as_server()}
    done = subprocess.run([*command, "--execute=SELECT 1"], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 1, done.stdout
    assert "Access denied" in done.stderr


def test_no_file_with_the_password_can_be_read_by_others(server: Server) -> None:
    password = urlsplit(server.url()).password
    assert password is not None
    assert len(password) >= 32
    assert server.data_dir.stat().st_mode & 0o077 == 0


def test_data_outlast_a_crash(server: Server) -> None:
    server.execute("CREATE TABLE stator.t (a int) ENGINE=InnoDB; INSERT INTO stator.t VALUES (7)")
    port = server.port
    server.restart()
    assert (server.execute("SELECT a FROM stator.t"), server.port) == ("7\n", port)


def test_folder_with_other_files_is_refused_and_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    other = type(server)(tmp_path)
    with pytest.raises(ServerError, match="holds other files; name a new or an empty directory"):
        other.start()
    other.remove()
    assert (tmp_path / "mine").read_text() == "kept"


def test_server_that_is_removed_leaves_nothing() -> None:
    with temporary_server() as server:
        pid, folder = server.pid, server.data_dir
        assert pid
    assert not folder.exists()
    assert server.pid is None
