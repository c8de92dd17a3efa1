"""The command line of an embedded database server."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from tests.servers.user import DATABASE, ServerError


class Server(Protocol):
    """What a server offers to the command line."""

    def start(self) -> None:
        """Start it and wait until it answers."""

    def stop(self) -> None:
        """Stop it."""

    def remove(self) -> None:
        """Stop it and delete its data."""

    def create_database(self, name: str) -> None:
        """Create a database of that name if it is missing."""

    def url(self, database: str = ...) -> str:
        """Return the ``DATABASE_URL`` of one of the databases."""


# Makes a server from its directory and its options.
MakeServer = Callable[..., Server]


class _Terminated(BaseException):
    """The process that started this one has sent a signal, or has ended."""


def main(program: str, make: MakeServer, arguments: list[str], errors: tuple[type[Exception], ...] = ()) -> int:
    """Run the command line of the package ``program`` and return the exit code; ``errors``: those of its driver."""
    ours, command = arguments, []
    if "--" in arguments:
        ours, command = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    options = _parser(program).parse_args(ours)
    told: tuple[type[Exception], ...] = (ServerError, OSError, *errors)
    try:
        return _act(program, make, options, command)
    except told as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, _Terminated):
        return 128 + signal.SIGINT


def _act(program: str, make: MakeServer, options: argparse.Namespace, command: list[str]) -> int:
    if (options.action == "run") != bool(command):
        raise ServerError(f"run, and no other action, needs a command after --: python -m {program} run DIR -- COMMAND")
    server, code = make(options.directory, options=options.options), 0
    try:
        if options.action == "run":
            _listen_for_signals()
            code = _run(server, command)
        elif options.action == "start":
            server.start()
            server.create_database(DATABASE)
        elif options.action == "stop":
            server.stop()
        if options.action in ("start", "url"):
            print(server.url())
    finally:
        if options.remove:
            server.remove()
    return code


def _listen_for_signals() -> None:
    # Background jobs of a shell ignore SIGINT. The command would inherit that, and could not clean up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


class _Set(argparse.Action):
    """An option that collects ``NAME=VALUE`` pairs in a dictionary."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        name, given, value = values.partition("=")
        if not (name.isidentifier() and given):
            parser.error(f"--set {values}: must be NAME=VALUE, for instance --set fsync=off")
        namespace.options = {**namespace.options, name: value}


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("start", "start a server with its data in DIR and print its DATABASE_URL"),
        ("url", "print the DATABASE_URL of the server that runs in DIR"),
        ("stop", "stop the server that runs in DIR"),
        ("run", "run DIR -- COMMAND ...: run COMMAND beside a server, and exit with its code"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("directory", metavar="DIR", type=Path)
        action.set_defaults(remove=False, options={})
        if name in ("stop", "run"):
            action.add_argument("--remove", action="store_true", help="delete the data afterwards")
        if name in ("start", "run"):
            action.add_argument("--set", dest="options", action=_Set, metavar="NAME=VALUE", help="a server parameter")
    return parser


def _run(server: Server, command: Sequence[str]) -> int:
    """Run a command with ``DATABASE_URL`` set while the server runs; return its exit code."""
    try:
        server.start()
        server.create_database(DATABASE)
        return _run_beside(command, {**os.environ, "DATABASE_URL": server.url()})
    finally:
        # Not a context manager: the server must stop even if start() was interrupted.
        server.stop()


def _run_beside(command: Sequence[str], environment: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise ServerError(f"cannot run {command[0]}: {error.strerror}") from None
    try:
        code = _wait_while_wanted(process)
    except KeyboardInterrupt:
        # The command shares the terminal and got this Ctrl-C too; a second one would interrupt its clean-up.
        _code_within(process, 10)
        _end(process)
        return 128 + signal.SIGINT
    except _Terminated:
        _end(process)
        return 128 + signal.SIGTERM
    return code if code >= 0 else 128 - code


def _wait_while_wanted(process: subprocess.Popen[bytes]) -> int:
    parent = os.getppid()
    while (code := _code_within(process, 0.5)) is None:
        if os.getppid() != parent:
            raise _Terminated
    return code


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        if _code_within(process, 10) is not None:
            return


def _code_within(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
