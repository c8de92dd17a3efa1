"""Real workers in processes of their own, for the tests that harm them; they see committed rows alone."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Self

from django.conf import settings
from django.db import connections

from tests.forks import Forked, ForkServer
from tests.sizes import PATIENCE


def environment_for_subprocess(**variables: str) -> dict[str, str]:
    """The variables with which a process finds the settings and the databases of the test that is running now."""
    databases = {
        f"TEST_DATABASE_{alias.upper()}": str(connections[alias].settings_dict["NAME"]) for alias in connections
    }
    fixed = {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
    }
    return {**os.environ, **databases, **fixed, **variables}


def settings_module(folder: Path, text: str, name: str = "changed_settings") -> dict[str, str]:
    """The variables with which a process has the settings of the tests and, after those, ``text``."""
    (folder / f"{name}.py").write_text(f"from tests.settings import *\n{text}\n")
    path = os.pathsep.join([str(folder), environment_for_subprocess()["PYTHONPATH"]])
    return {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": name}


# The commands whose processes are forked, and the variables of those.
FORKED = {"runstator": {"TEST_WORKER": "1"}, "runserver": {}}


@cache
def fork_server(command: str) -> ForkServer:
    """The process from which this one has its workers or its servers forked."""
    return ForkServer(environment_for_subprocess(**FORKED[command]))


class WorkerProcess:
    """``manage.py runstator`` as a process group of its own; leaving the context ends whatever is left of it."""

    # What the event log calls it, if it is one of several.
    name: str

    def __init__(self, *arguments: str, command: str = "runstator", **variables: str) -> None:
        self.command = [sys.executable, "-m", "django", command, *arguments]
        self.variables = {**FORKED.get(command, {}), **variables}

    def __enter__(self) -> Self:
        # Not kept open: bin/chaos starts a thousand in one test.
        handle, name = tempfile.mkstemp(prefix="stator-worker-")
        os.close(handle)
        self._output = Path(name)
        environment = environment_for_subprocess(**self.variables)
        if self._may_fork() and (server := fork_server(self.command[3])).fits(environment):
            self._process: Forked | subprocess.Popen = server.start(self.command[3:], environment, name)
            return self
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def _may_fork(self) -> bool:
        """Whether it is such a command that does not start itself again, on a system that tells when a process ends."""
        return (
            self.command[1:3] == ["-m", "django"]
            and self.command[3] in FORKED
            and "--reload" not in self.command
            and hasattr(os, "pidfd_open")
        )

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.wait()
        self._output.unlink()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """Return its output so far, errors included."""
        return self._output.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first process alone, as an operator or a container runtime does."""
        self._process.send_signal(number)

    def stand_still(self) -> None:
        """Stop the first process and return when all its threads stand.

        The signal alone says little: on a crowded machine a thread goes on for a while, and may begin a transaction.
        """
        self.send(signal.SIGSTOP)
        if isinstance(self._process, Forked):
            wait_until(lambda: self._process.stands(), message=lambda: f"worker {self.pid} goes on:\n{self.output()}")
            return
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"worker {self.pid} has ended; it wrote:\n{self.output()}"

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to every process of the group, by default as if the machine had gone."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Gone; macOS says "not permitted" of a group in which all are.
            return

    def stop(self, timeout: float = PATIENCE) -> int:
        """Ask it to stop, as a deployment does, and wait; the exit code."""
        self.ask_to_stop()
        return self.wait(timeout)

    def ask_to_stop(self) -> None:
        """Send SIGTERM once it would be heeded: a process that has only just begun to load is ended by it at once."""
        status = Path(f"/proc/{self.pid}/status")
        wait_until(lambda: self.returncode is not None or not status.exists() or _catches(status), message=self.output)
        self.send(signal.SIGTERM)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait until it is gone; the exit code. Fails with the output when it stays."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"worker {self.pid} still runs after {timeout} s; it wrote:\n{self.output()}"
            ) from None


def _catches(status: Path) -> bool:
    """Whether a process has a handler of its own for SIGTERM, by what Linux tells of it."""
    caught = next((line for line in status.read_text().splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def events(printed: str, name: str = "") -> list[dict[str, Any]]:
    """The events of a JSON log, all or those of that name; a last line that is still being written is left out."""
    whole = printed.rpartition("\n")[0]
    found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [event for event in found if name in ("", event.get("event"))]


def wait_until(condition: Callable[[], Any], timeout: float = PATIENCE, message: str | Callable[[], str] = "") -> Any:
    """The first true value of the condition; fails with the message (or what it returns) when none comes in time."""
    pause, begun = Event(), monotonic()
    while not (value := condition()):
        if (waited := monotonic() - begun) > timeout:
            raise AssertionError((message() if callable(message) else message) or f"nothing came true in {timeout} s")
        # What takes long needs no quick look: each is a query, beside workers that compute.
        pause.wait(0.02 if waited < 1.0 else 0.1)
    return value
