"""Projects of their own in a temporary folder, worked on by real ``manage.py`` commands, on the server of this run."""

import os
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import connection

from tests.forks import Forked, ForkServer
from tests.sizes import PATIENCE

if connection.vendor == "mysql":
    from MySQLdb import connect
else:
    from psycopg import connect

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
"""

# A model whose objects wait for somebody outside.
ORDER = """
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class OrderGraph(StateGraph):
    new = State(externally_progressed=True)
    done = State()
    new.transitions_to(done)


class Order(StatorModel):
    state = StateField(OrderGraph)
"""

SETTINGS = """
DATABASES = {{"default": {database!r}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "stator", {apps}]
SECRET_KEY = "for tests"
# As the documentation says for MariaDB.
SILENCED_SYSTEM_CHECKS = ["models.W036", "models.W037", "models.W043"]
USE_TZ = True
{further}
"""

# As the two commands one after the other; each is started in longer than it takes.
MAKE_TABLES = """
import importlib
from django.core.management import call_command

call_command("makemigrations", *{apps!r}, skip_checks=False)
importlib.invalidate_caches()
call_command("migrate", skip_checks=False)
"""

# The names of indexes, as far as the name of the table.
INDEXES = {
    "sqlite": "name FROM sqlite_master WHERE tbl_name",
    "postgresql": "indexname FROM pg_indexes WHERE tablename",
    "mysql": "index_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name",
}


class Project:
    """A project: its files, its commands, and its database as a program without Django sees it."""

    def __init__(self, folder: Path, database: dict[str, Any]) -> None:
        self.folder = folder
        self.database = database

    def begin(self, *apps: str, further: str = "") -> None:
        """Make ``manage.py`` and settings with these apps; those that are not Django's own get folders."""
        names = ", ".join(map(repr, apps))
        self.write("manage.py", MANAGE)
        self.write("settings.py", SETTINGS.format(database=self.database, apps=names, further=further))
        for app in apps:
            if "." not in app:
                self.write(f"{app}/__init__.py", "")
                self.write(f"{app}/migrations/__init__.py", "")

    def write(self, path: str, text: str) -> None:
        """Write a file, in the folders that it needs."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def read(self, path: str) -> str:
        """The text of a file."""
        return (self.folder / path).read_text()

    def manage(self, *arguments: str, code: int = 0) -> str:
        """Run ``manage.py``; return what it printed, after it ended with the exit code that is expected."""
        with tempfile.NamedTemporaryFile("r") as output, tempfile.NamedTemporaryFile("r") as errors:
            process = self._start(arguments, output.name, errors.name)
            try:
                ended = process.wait(300)
            finally:
                process.send_signal(signal.SIGKILL)
            printed = f"{output.read()}{errors.read()}"
        assert ended == code, f"manage.py {' '.join(arguments)} ended with {ended}:\n{printed}"
        return printed

    @contextmanager
    def process(self, *arguments: str) -> Iterator[Forked]:
        """``manage.py`` as a process that runs on, until the context ends."""
        started = self._start(arguments, os.devnull, os.devnull)
        try:
            yield started
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(PATIENCE)

    def _start(self, arguments: tuple[str, ...], output: str, errors: str) -> Forked:
        return fork_server().start([str(self.folder), "manage.py", *arguments], environment(), output, errors)

    def make_tables(self, *apps: str) -> None:
        """Make the migrations of apps, check the project and migrate, in one process."""
        self.manage("shell", "-c", MAKE_TABLES.format(apps=apps))

    def execute(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement that a program without Django sends; parameters are ``?``."""
        with closing(self._connect()) as database, closing(database.cursor()) as cursor:
            cursor.execute(statement if self.is_sqlite else statement.replace("?", "%s"), params)
            found = list(cursor.fetchall()) if cursor.description else []
            database.commit()
            return found

    def columns(self, table: str) -> list[str]:
        """The names of the columns of a table, in the order of the alphabet."""
        with closing(self._connect()) as database, closing(database.cursor()) as cursor:
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")
            return sorted(column[0] for column in cursor.description)

    def indexes(self, table: str) -> list[str]:
        """The names of the indexes of a table that are not those of keys."""
        found = {name for (name,) in self.execute(f"SELECT {INDEXES[connection.vendor]} = ?", table)}
        return sorted(name for name in found if name.startswith(("st_", "ix_")))

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file of SQLite."""
        return connection.vendor == "sqlite"

    def _connect(self) -> Any:
        return (
            sqlite3.connect(self.database["NAME"], timeout=30) if self.is_sqlite else connect(**conninfo(self.database))
        )


def environment() -> dict[str, str]:
    """The variables of a project: without the settings of this run, its packages before those of this repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "STATOR_"))}
    return {**kept, "PYTHONPATH": str(settings.BASE_DIR)}


@cache
def fork_server() -> ForkServer:
    """The process from which the commands of projects are forked."""
    return ForkServer(environment(), connection.settings_dict["ENGINE"])


# What the pages of the admin need.
ADMIN_SETTINGS = """
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
"""


@contextmanager
def temporary_project(folder: Path) -> Iterator[Project]:
    """A project without files, with an empty database of the vendor that is tested now."""
    if connection.vendor == "sqlite":
        yield Project(folder, {**_given("ENGINE", "OPTIONS"), "NAME": str(folder / "db.sqlite3")})
        return
    name = f"project_{uuid4().hex[:12]}"
    execute_on_server(f"CREATE DATABASE {name}")
    try:
        yield Project(folder, {**_given("ENGINE", "HOST", "PORT", "USER", "PASSWORD"), "NAME": name})
    finally:
        execute_on_server(f"DROP DATABASE {name}{' WITH (FORCE)' if connection.vendor == 'postgresql' else ''}")


def _given(*names: str) -> dict[str, Any]:
    return {name: connection.settings_dict[name] for name in names}


def is_mariadb() -> bool:
    """Whether the server of this run is MariaDB rather than MySQL; Django would ask by the connection of a test."""
    with closing(connect(**conninfo({**connection.settings_dict, "NAME": "information_schema"}))) as server:
        return "MariaDB" in server.get_server_info()


def execute_on_server(statement: str) -> None:
    """On the server, by a connection that no test has; a database cannot be made within a transaction."""
    always = {"postgresql": "postgres", "mysql": "information_schema"}[connection.vendor]
    given = conninfo({**connection.settings_dict, "NAME": always})
    with closing(connect(**given, autocommit=True)) as server, closing(server.cursor()) as cursor:
        cursor.execute(statement)


def conninfo(config: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the driver's ``connect`` for a database of Django's settings."""
    parts = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    if connection.vendor == "mysql":
        parts = {"db" if name == "dbname" else name: key for name, key in parts.items()}
    return {**{name: config[key] or None for name, key in parts.items()}, "port": int(config["PORT"])}
