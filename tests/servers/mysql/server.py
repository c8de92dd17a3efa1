"""One MySQL server: like that of MariaDB, but for its programs and its first users."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

from tests.servers import mariadb
from tests.servers.mariadb.server import FOLDERS, ROUNDS
from tests.servers.user import ServerError

# Executed on each start. A new server has a user root without a password.
SETUP = """
DROP USER IF EXISTS root@localhost;
CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO {user} WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS {database};
"""


class MySQLError(ServerError):
    """An operation of the embedded MySQL failed."""


class Server(mariadb.Server):
    """A server with its data in one directory.

    ``MYSQL_PROGRAMS`` in the environment names the folder of ``mysqld``, ``mysql`` and ``mysql_tzinfo_to_sql``; they
    are looked for on ``PATH`` otherwise.
    """

    package: ClassVar[str] = "tests.servers.mysql"
    error: ClassVar[type[ServerError]] = MySQLError
    server_program: ClassVar[str] = "mysqld"
    client_program: ClassVar[str] = "mysql"
    zones_program: ClassVar[str] = "mysql_tzinfo_to_sql"
    # A log for replicas is on by default, and no test has a replica.
    flags: ClassVar[tuple[str, ...]] = ("--no-defaults", "--skip-name-resolve", "--skip-log-bin", "--mysqlx=OFF")
    own_options: ClassVar[Mapping[str, Any]] = {
        "cte_max_recursion_depth": ROUNDS,
        # The folder that a package names for files of users may be out of reach.
        "secure_file_priv": "NULL",
    }
    setup: ClassVar[str] = SETUP

    def find(self, name: str) -> str:
        """Return the path of one of the server's programs."""
        return find_program(name)

    def _create_data(self) -> None:
        self._run(self.find("mysqld"), "--no-defaults", "--initialize-insecure", f"--datadir={self.data_dir}")


@contextmanager
def temporary_server(options: Mapping[str, Any] | None = None) -> Iterator[mariadb.Server]:
    """Run a server for the duration of the block, and remove it without a trace."""
    with mariadb.temporary_server(options, Server) as server:
        yield server


@cache
def find_program(name: str) -> str:
    """Return the path of one of MySQL's programs; MariaDB has programs of the same names."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS])
    found = shutil.which(name, path=os.environ.get("MYSQL_PROGRAMS") or path)
    if not found:
        raise MySQLError(f"there is no {name} here; set MYSQL_PROGRAMS to the folder of MySQL's programs")
    if name == "mysqld" and "MariaDB" in _version(found):
        raise MySQLError(f"{found} is MariaDB's; set MYSQL_PROGRAMS to the folder of MySQL's programs")
    return found


def _version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
