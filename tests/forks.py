"""Processes forked from one that has loaded what they need: each start of Python and Django takes most of a second.

Workers have the site of the tests, commands of other projects only Django. They are processes like any others: sessions
of their own, with the environment and the settings that they are given.
"""

import atexit
import gc
import json
import logging
import os
import runpy
import select
import selectors
import signal
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module, reload
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

# Variables that a worker reads when it runs, and not when it loads.
LATE = ("STATOR_", "TEST_DATABASE_", "TESTAPP_", "PGAPPNAME", "PYTEST_CURRENT_TEST")

# What commands of projects load, as far as it neither reads settings nor has models; a project may have another stator.
OF_PROJECTS = (
    "django.core.management.commands.makemigrations", "django.core.management.commands.migrate", "django.template",
    "django.contrib.auth.hashers", "django.core.cache.backends.locmem", "hypothesis", "prometheus_client",
    "pydantic",
)  # fmt: skip


class Forked:
    """A forked process, with the methods of ``subprocess.Popen`` that tests need."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        self._server = server

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._server.code_of(self.pid, 0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return its exit code."""
        code = self._server.code_of(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def stands(self) -> bool:
        """Return whether a signal has stopped all its threads."""
        states = [
            each.read_text().rpartition(")")[2].split()[0] for each in Path(f"/proc/{self.pid}/task").glob("*/stat")
        ]
        return set(states) == {"T"}

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServer:
    """The process from which others are forked; it ends with the process that started it.

    ``engine``: of the database of projects whose commands are forked from it; if it is empty, workers are.
    """

    def __init__(self, environment: dict[str, str], engine: str = "") -> None:
        self._lasting = _lasting(environment)
        self._codes: dict[int, int] = {}
        self._lock = Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", *filter(None, [engine])],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self._close)

    def fits(self, environment: dict[str, str]) -> bool:
        """Return whether a process with this environment would have loaded what this one has."""
        return _lasting(environment) == self._lasting

    def start(self, arguments: list[str], environment: dict[str, str], output: str, errors: str = "") -> Forked:
        """Start a command of Django that writes into a file, or two; of a project, first its folder and its script."""
        with self._lock:
            self._process.stdin.write(json.dumps([arguments, environment, output, errors or output]).encode() + b"\n")
            self._process.stdin.flush()
            while (pid := self._read()) is None:
                pass
            return Forked(self, pid)

    def code_of(self, pid: int, timeout: float | None) -> int | None:
        """Return the exit code of a process; None if it still runs when the time is over."""
        end = None if timeout is None else monotonic() + timeout
        with self._lock:
            while pid not in self._codes:
                left = None if end is None else max(0.0, end - monotonic())
                if not select.select([self._process.stdout], [], [], left)[0]:
                    return None
                self._read()
            return self._codes[pid]

    def _read(self) -> int | None:
        """Read one message: the id of a process that was started, or an exit code."""
        # Unbuffered, so that select() sees every message that was not read.
        text = b""
        while not text.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            assert byte, f"the process that forks workers has ended with {self._process.wait()}"
            text += byte
        pid, code = json.loads(text)
        if code is None:
            # Ids are used again.
            self._codes.pop(pid, None)
            return pid
        self._codes[pid] = code
        return None

    def _close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _lasting(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables on which depends what a process loads: of the database only its kind."""
    kept = {name: value for name, value in environment.items() if not name.startswith(LATE)}
    return kept | {"DATABASE_URL": kept.get("DATABASE_URL", "").partition(":")[0]}


def _run_commands(engine: str) -> None:
    """Run scripts of projects, each in its folder, as its ``manage.py``."""
    for name in (*OF_PROJECTS, f"{engine}.base"):
        import_module(name)
    gc.freeze()
    [folder, *arguments], environment, output, errors = _serve()
    # Only a forked process comes here.
    _redirect(output, errors)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv = arguments
    runpy.run_path(sys.argv[0], run_name="__main__")


def _run_workers() -> None:
    import django
    from django.core.management import execute_from_command_line

    django.setup()
    command = str(Path(django.__file__).with_name("__main__.py"))
    # Loads what the command needs.
    with redirect_stdout(None), suppress(SystemExit):
        execute_from_command_line([command, "runstator", "--help"])
    # The collector writes into what it visits, of which each worker would then need a copy.
    gc.freeze()
    arguments, environment, *files = _serve()
    # Only a forked process comes here.
    _redirect(*files)
    _become(environment)
    sys.argv = [command, *arguments]
    execute_from_command_line(sys.argv)


def _serve() -> list[Any]:
    """Fork a process for each request and report when it ends; return the request in that process."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.buffer, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    if not (line := sys.stdin.buffer.readline()):
                        sys.exit()
                    if not (pid := _fork()):
                        for each in selector.get_map().values():
                            if each.data is not None:
                                os.close(each.fd)
                        return json.loads(line)
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                    _tell(pid, None)
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(key.data, 0)
                    _tell(key.data, os.waitstatus_to_exitcode(status))


def _fork() -> int:
    """Fork; return in the parent when the child leads a session, so that its group can be sent signals."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        os.read(reading, 1)
    else:
        os.setsid()
        os.close(writing)
    os.close(reading)
    return pid


def _tell(pid: int, code: int | None) -> None:
    os.write(1, json.dumps([pid, code]).encode() + b"\n")


def _redirect(output: str, errors: str) -> None:
    """Have this process read nothing, and write into files."""
    writing = os.O_WRONLY | os.O_APPEND
    for path, flags, number in ((os.devnull, os.O_RDONLY, 0), (output, writing, 1), (errors, writing, 2)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)


def _become(environment: dict[str, str]) -> None:
    """Have this process as if it had been started with that environment."""
    from django.conf import Settings, settings
    from django.db import connections
    from django.db.utils import ConnectionHandler
    from django.utils.log import configure_logging

    os.environ.clear()
    os.environ.update(environment)
    # A process that starts reads its settings before it can log.
    logging.disable()
    for name in ("project.settings", "tests.settings"):
        reload(import_module(name))
    logging.disable(logging.NOTSET)
    settings._wrapped = Settings("tests.settings")
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    # What it has of databases is of the former settings.
    vars(connections).pop("settings", None)
    ConnectionHandler.__init__(connections)


if __name__ == "__main__":
    if sys.argv[1:]:
        _run_commands(sys.argv[1])
    else:
        _run_workers()
