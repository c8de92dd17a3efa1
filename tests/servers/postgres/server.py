"""One PostgreSQL server: start it, crash it, remove it."""

import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.servers.postgres.programs import PostgresError, find_programs, given_programs
from tests.servers.user import (
    ADDRESS,
    DATABASE,
    as_server,
    free_port,
    give_to_server,
    last_lines,
    open_place,
    open_to_server,
)

# Of the embedded server. Another one keeps the defaults that its users have.
OPTIONS = {"max_connections": 300, "shared_buffers": "256MB"}
# The path of a unix socket has at most 107 bytes (103 on some systems), of which the socket's name takes 15.
MAX_DIRECTORY = 85
PATIENCE = 60
PASSWORD_FILE = "password"
NO_PROCESS = 2**31 - 1


class Server:
    """A server with its data in one directory, with default durability, reached over TCP and a unix socket.

    Every connection needs the server's random password, because every user of the machine can reach the port. The
    password is in a file of the data directory, readable only by the server's user and root. If root starts the server,
    it runs as ``nobody``, so other processes of ``nobody`` can read its files.

    ``primary``: a running server; this one is its standby until it is promoted.
    """

    def __init__(
        self,
        data_dir: str | Path,
        port: int | None = None,
        options: Mapping[str, Any] | None = None,
        primary: "Server | None" = None,
    ) -> None:
        self.given_dir = Path(data_dir).resolve()
        self.port = port
        self.options = {**({} if given_programs() else OPTIONS), **(options or {})}
        self.primary = primary

    @property
    def data_dir(self) -> Path:
        """Return the data directory: the given one, or the one that it points to if the server could not use it."""
        pointer = self.given_dir / "moved-to"
        return Path(pointer.read_text()) if pointer.exists() else self.given_dir

    @property
    def pid(self) -> int | None:
        """Return the process id of the running server; None if there is none, even if a crash left a PID file."""
        status = self._status()
        try:
            command = psutil.Process(int(status[0])).cmdline() if status else []
        except (ValueError, psutil.Error):
            return None
        return int(status[0]) if str(self.data_dir) in command else None

    @property
    def dsn(self) -> str:
        """Return the connection string of the maintenance database, over the unix socket."""
        return make_conninfo(self._dsn_without_password, password=self.password)

    @property
    def password(self) -> str:
        """Return the password of the superuser ``postgres``."""
        return (self.data_dir / PASSWORD_FILE).read_text()

    def url(self, database: str = DATABASE) -> str:
        """Return the ``DATABASE_URL`` of one of the databases, over TCP."""
        return f"postgresql://postgres:{self.password}@{ADDRESS}:{self._running_port()}/{database}"

    def start(self) -> None:
        """Start the server and wait until it answers; do nothing if it runs already."""
        if self.pid:
            self.port = self._running_port()
            return
        self._prepare()
        try:
            self._start(self.port or free_port())
        except PostgresError:
            # The port may have been taken meanwhile, and processes of a killed server need a moment to end.
            time.sleep(1)
            self._start(self.port or free_port())
        self.port = self._running_port()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``smart`` waits for clients, ``fast`` disconnects them, ``immediate`` is a crash."""
        if self.pid:
            self._run("pg_ctl", "stop", "-w", "-t", str(PATIENCE), "-m", mode)

    def restart(self, mode: str = "immediate") -> None:
        """Stop and start on the same port; by default like a power failure."""
        self.stop(mode)
        self.start()

    def promote(self) -> None:
        """Promote a standby to a primary."""
        self._run("pg_ctl", "promote", "-w", "-t", str(PATIENCE))

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop("immediate")
        for directory in {self.data_dir, self.given_dir}:
            # Never delete other files in a directory that was named by mistake.
            if (directory / "PG_VERSION").exists() or (directory / "moved-to").exists():
                shutil.rmtree(directory, ignore_errors=True)

    def create_database(self, name: str) -> None:
        """Create a database of that name if it is missing."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    @property
    def _dsn_without_password(self) -> str:
        return make_conninfo(host=str(self.data_dir), port=self._running_port(), user="postgres", dbname="postgres")

    def _start(self, port: int) -> None:
        self._disown_locks()
        # The dot is the data directory, so its path may have any characters.
        options = {"listen_addresses": ADDRESS, "unix_socket_directories": ".", **self.options}
        arguments = shlex.join(["-p", str(port), *(f"--{name}={value}" for name, value in options.items())])
        log = self.data_dir / "server.log"
        self._run("pg_ctl", "start", "-w", "-t", str(PATIENCE), "-l", str(log), "-o", arguments)

    def _disown_locks(self) -> None:
        """Make sure that no lock file names a living process: the PID of a crashed server may be reused."""
        for lock in (self.data_dir / "postmaster.pid", *self.data_dir.glob(".s.PGSQL.*.lock")):
            if lock.exists():
                # Kept: its other lines let a new server detect what is left of the old one.
                rest = lock.read_text().partition("\n")[2]
                lock.write_text(f"{NO_PROCESS}\n{rest}")

    def _status(self) -> list[str]:
        try:
            return (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _running_port(self) -> int:
        if not self.pid:
            raise PostgresError(
                f"no server runs in {self.given_dir}; start it with: python -m tests.servers.postgres start DIR"
            )
        return int(self._status()[3])

    def _prepare(self) -> None:
        if (self.data_dir / "PG_VERSION").exists() and self.password:
            return
        self.given_dir.mkdir(parents=True, exist_ok=True)
        (self.given_dir / "moved-to").unlink(missing_ok=True)
        if any(self.given_dir.iterdir()):
            raise PostgresError(f"{self.given_dir} holds other files; name a new or an empty directory")
        if len(str(self.given_dir)) > MAX_DIRECTORY or not open_to_server(self.given_dir):
            (self.given_dir / "moved-to").write_text(tempfile.mkdtemp(prefix="stator-postgres-", dir=open_place()))
        give_to_server(self.data_dir)
        if self.primary:
            # The primary's files contain the password. It is not passed as an argument, which every user could list.
            command = ("--write-recovery-conf", "--checkpoint=fast", "--dbname", self.primary._dsn_without_password)
            self._run("pg_basebackup", *command, PGPASSWORD=self.primary.password)
            return
        self._initialize()

    def _initialize(self) -> None:
        password = secrets.token_hex(16)
        # Strings sort the same everywhere, whatever the machine's locale.
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if given_programs():
            # Before version 17, PostgreSQL has this only from the system.
            locale = ["--encoding=UTF8", "--locale=C.UTF-8"]
        # initdb reads the password from a file, and needs an empty data directory.
        with tempfile.NamedTemporaryFile("w", prefix="stator-postgres-", dir=open_place()) as file:
            file.write(password)
            file.flush()
            give_to_server(Path(file.name))
            self._run("initdb", "--auth=scram-sha-256", f"--pwfile={file.name}", "--username=postgres", *locale)
        kept = self.data_dir / PASSWORD_FILE
        kept.touch(0o600)
        kept.write_text(password)
        give_to_server(kept)

    def _run(self, program: str, *arguments: str, **variables: str) -> None:
        # To a file: the server inherits a pipe, and reading it would wait until the server ends.
        with tempfile.TemporaryFile("w+") as output:
            command = [str(find_programs() / program), "-D", str(self.data_dir), *arguments]
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            options: dict[str, Any] = {"env": {**os.environ, **variables}, **streams, **as_server()}
            code = subprocess.run(command, cwd=self.data_dir, check=False, **options).returncode
            if code:
                output.seek(0)
                lines = [*output.read().splitlines(), *last_lines(self.data_dir / "server.log")]
                raise PostgresError(f"{program} failed with exit code {code}: {' | '.join(lines[-6:])}")


@contextmanager
def temporary_server(options: Mapping[str, Any] | None = None, primary: Server | None = None) -> Iterator[Server]:
    """Run a server for the duration of the block, and remove it without a trace."""
    with tempfile.TemporaryDirectory(prefix="stator-postgres-") as folder:
        server = Server(Path(folder) / "data", options=options, primary=primary)
        try:
            server.start()
            yield server
        finally:
            # The data may be outside that folder if the server's user could not use it.
            server.remove()
