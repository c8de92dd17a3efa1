"""One MariaDB server: start it, crash it, remove it.

Its programs are those of the system, such as Debian's package ``mariadb-server``; the system's own server and its
configuration are left alone.
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import psutil

from tests.servers.user import (
    ADDRESS,
    DATABASE,
    ServerError,
    as_server,
    free_port,
    give_to_server,
    last_lines,
    open_place,
    open_to_server,
)

USER = "stator"
OPTIONS = {
    "max_connections": 300,
    "innodb_buffer_pool_size": "256M",
    "character_set_server": "utf8mb4",
    # As the documentation advises: keys and names that differ in case are different.
    "collation_server": "utf8mb4_bin",
    "default_time_zone": "+00:00",
}
# By default a recursive query ends with an error after 1,000 rounds, and tests number their rows by one.
ROUNDS = 10_000_000
# Where Debian has the programs, which is not on the path of everybody.
FOLDERS = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec", "/usr/local/mariadb/bin")
ZONES = Path("/usr/share/zoneinfo")
PATIENCE = 60
PASSWORD_FILE = "password"
SETUP_FILE = "setup.sql"
PID_FILE = "server.pid"
LOG = "server.log"

# Executed on each start, before the server accepts connections. A new server has users without a password.
SETUP = """
DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys';
FLUSH PRIVILEGES;
CREATE USER {user} IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO {user} WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS {database};
"""


class MariaDBError(ServerError):
    """An operation of the embedded MariaDB failed."""


class Server:
    """A server with its data in one directory, with default durability, reached over TCP on the loopback interface.

    Every connection needs the server's random password, because every user of the machine can reach the port. If root
    starts the server, it runs as ``nobody``, so other processes of ``nobody`` can read its files.

    ``time_zones``: load the time zones that Django's truncation of times needs, which takes some seconds.
    """

    # What differs on MySQL.
    package: ClassVar[str] = "tests.servers.mariadb"
    error: ClassVar[type[ServerError]] = MariaDBError
    server_program: ClassVar[str] = "mariadbd"
    client_program: ClassVar[str] = "mariadb"
    zones_program: ClassVar[str] = "mariadb-tzinfo-to-sql"
    flags: ClassVar[tuple[str, ...]] = ("--no-defaults", "--skip-name-resolve")
    own_options: ClassVar[Mapping[str, Any]] = {"max_recursive_iterations": ROUNDS}
    setup: ClassVar[str] = SETUP

    def __init__(
        self,
        data_dir: str | Path,
        port: int | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        time_zones: bool = False,
    ) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.time_zones = time_zones
        self.port = port
        self.options = {**OPTIONS, **self.own_options, **(options or {})}
        # None if another process has started it.
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the running server; None if there is none, even if a crash left a PID file."""
        try:
            process = psutil.Process(int((self.data_dir / PID_FILE).read_text()))
            ours = f"--datadir={self.data_dir}" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.Error):
            return None
        return process.pid if ours else None

    @property
    def password(self) -> str:
        """Return the password of the user ``stator``, who may do anything."""
        return (self.data_dir / PASSWORD_FILE).read_text()

    def url(self, database: str = DATABASE) -> str:
        """Return the ``DATABASE_URL`` of one of the databases, over TCP."""
        return f"mysql://{USER}:{self.password}@{ADDRESS}:{self._running_port()}/{database}"

    def start(self) -> None:
        """Start the server and wait until it answers; do nothing if it runs already."""
        if not self.pid:
            is_new = self._prepare()
            self._start(self.port or free_port())
            if is_new and self.time_zones:
                self._load_time_zones()
        self.port = self._running_port()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``fast`` disconnects clients, ``immediate`` is a crash."""
        if pid := self.pid:
            process = psutil.Process(pid)
            process.send_signal(signal.SIGKILL if mode == "immediate" else signal.SIGTERM)
            process.wait(PATIENCE)
        if self._process:
            self._process.wait(PATIENCE)
            self._process = None

    def restart(self, mode: str = "immediate") -> None:
        """Stop and start on the same port; by default like a power failure."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop("immediate")
        # Never delete other files in a directory that was named by mistake.
        if (self.data_dir / "ibdata1").exists() or (self.data_dir / PASSWORD_FILE).exists():
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def create_database(self, name: str) -> None:
        """Create a database of that name if it is missing."""
        self.execute(f"CREATE DATABASE IF NOT EXISTS `{name}`")

    def execute(self, statements: str) -> str:
        """Run statements as the server's user with the client program and return what it prints."""
        command = [
            self.find(self.client_program), "--no-defaults", f"--host={ADDRESS}", f"--port={self._running_port()}",
            f"--user={USER}", "--skip-column-names", "--batch",
        ]  # fmt: skip
        # Not as an argument, which every user could list.
        environment = {**os.environ, "MYSQL_PWD": self.password}
        done = subprocess.run(command, input=statements, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise self.error(f"{self.client_program} failed with exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def find(self, name: str) -> str:
        """Return the path of one of the server's programs."""
        return find_program(name)

    def _running_port(self) -> int:
        if not self.pid:
            raise self.error(f"no server runs in {self.data_dir}; start it with: python -m {self.package} start DIR")
        [port] = [each for each in psutil.Process(self.pid).cmdline() if each.startswith("--port=")]
        return int(port.removeprefix("--port="))

    def _prepare(self) -> bool:
        """Create the data if there are none; return whether it did."""
        if (self.data_dir / PASSWORD_FILE).exists():
            return False
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if any(self.data_dir.iterdir()):
            raise self.error(f"{self.data_dir} holds other files; name a new or an empty directory")
        if not open_to_server(self.data_dir):
            raise self.error(f"the server's user cannot enter {self.data_dir}; name a directory that is open")
        give_to_server(self.data_dir)
        self.data_dir.chmod(0o700)
        self._create_data()
        password = secrets.token_hex(16)
        self._keep(SETUP_FILE, self.setup.format(password=password, user=USER, database=DATABASE))
        self._keep(PASSWORD_FILE, password)
        return True

    def _create_data(self) -> None:
        # What the server itself is told on its command line is left out: this creates only the system's tables.
        self._run(
            self.find("mariadb-install-db"), "--no-defaults", f"--datadir={self.data_dir}", "--skip-test-db",
            "--auth-root-authentication-method=normal", "--skip-name-resolve",
        )  # fmt: skip

    def _load_time_zones(self) -> None:
        if ZONES.is_dir():
            command = [self.find(self.zones_program), str(ZONES)]
            zones = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.execute(f"USE mysql;\n{zones}")

    def _keep(self, name: str, text: str) -> None:
        kept = self.data_dir / name
        kept.touch(0o600)
        kept.write_text(text)
        give_to_server(kept)

    def _start(self, port: int) -> None:
        options = {
            "datadir": self.data_dir,
            "bind-address": ADDRESS,
            "port": port,
            "pid-file": self.data_dir / PID_FILE,
            "log-error": self.data_dir / LOG,
            "init-file": self.data_dir / SETUP_FILE,
            # The path of a unix socket has at most 107 bytes, whatever the folder is.
            "socket": "server.sock",
            **self.options,
        }
        command = [self.find(self.server_program), *self.flags]
        command += [f"--{name}={value}" for name, value in options.items()]
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        (self.data_dir / PID_FILE).unlink(missing_ok=True)
        process = subprocess.Popen(command, cwd=self.data_dir, start_new_session=True, **streams, **as_server())
        self._process = process
        deadline = time.monotonic() + PATIENCE
        # The server writes its PID file when it accepts connections.
        while not self.pid:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                lines = " | ".join(last_lines(self.data_dir / LOG))
                raise self.error(f"{self.server_program} did not start on port {port}: {lines}")
            time.sleep(0.05)

    def _run(self, *command: str) -> None:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **as_server()}
        done = subprocess.run(command, cwd=self.data_dir, check=False, **options)
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            raise self.error(f"{command[0]} failed with exit code {done.returncode}: {' | '.join(lines[-6:])}")


@contextmanager
def temporary_server(options: Mapping[str, Any] | None = None, kind: type[Server] = Server) -> Iterator[Server]:
    """Run a server for the duration of the block, and remove it without a trace."""
    with tempfile.TemporaryDirectory(prefix="stator-mariadb-", dir=open_place()) as folder:
        Path(folder).chmod(0o711)
        server = kind(Path(folder) / "data", options=options)
        try:
            server.start()
            yield server
        finally:
            server.remove()


def find_program(name: str) -> str:
    """Return the path of one of MariaDB's programs."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS])
    if not (found := shutil.which(name, path=path)):
        raise MariaDBError(f"there is no {name} here; as root: apt-get install mariadb-server-core mariadb-client")
    return found
