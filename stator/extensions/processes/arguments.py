"""``runstator --processes`` and ``--reload``: processes that work in place of the command's own."""

import os
from argparse import ArgumentParser
from typing import TYPE_CHECKING

from django.core.management.base import CommandError
from django.db import connections
from django.utils.autoreload import get_child_arguments

from stator.commands.answer import BadInput, Options
from stator.extensions.processes.reloader import Reloader
from stator.extensions.processes.supervisor import Supervisor
from stator.rows.workers import default_name
from stator.terminal import BAD
from stator.texts import WORKER_NAME, WORKER_NAME_RULE

if TYPE_CHECKING:
    from stator.management.commands.runstator import Command
    from stator.runner import StatorRunner

# Why a worker ends that needs no replacement: --until-idle, --run-for.
DONE = ("idle", "time over")


def add_arguments(parser: ArgumentParser) -> None:
    """Add how many processes there are, and whether they are replaced when code changes."""
    add = parser.add_argument
    processes_help = "Worker processes under a parent that replaces them (default: one, without a parent)."
    add("--processes", type=int, metavar="N", help=processes_help)
    reload_help = "For development: replace the worker when a Python file changes."
    add("--reload", action="store_true", help=reload_help)
    add("--parent", type=int, metavar="PID", help="Stop when this process, which started the worker, is gone.")


def take(options: Options) -> None:
    """Refuse wrong numbers of processes, and a name that is too long for some of them."""
    processes = 1 if options["processes"] is None else options["processes"]
    if not 1 <= processes <= 256:
        raise BadInput(f"--processes {processes} must be from 1 to 256")
    name, suffix = options["name"], f"-{processes}"
    if processes > 1 and name and not WORKER_NAME.fullmatch(name + suffix):
        raise BadInput(f"--name {name[:40]!r} must be {WORKER_NAME_RULE} with the suffix {suffix}")


def instead(command: "Command", runner: "StatorRunner", options: Options) -> int | None:
    """Work in further processes if the options say so, and return the exit code."""
    if options["reload"]:
        return _reload(command)
    return None if options["processes"] is None else _supervise(command, runner, options["processes"])


def _reload(command: "Command") -> int:
    if not command.is_on_its_own:
        raise CommandError("--reload is for a command line; call runstator without it", returncode=BAD)
    # As this process was called: ``manage.py`` or ``python -m django``.
    called = [each for each in get_child_arguments() if each != "--reload"]
    return Reloader([*called, "--parent", str(os.getpid())], command.say).run()


def _supervise(command: "Command", runner: "StatorRunner", processes: int) -> int:
    # Forked processes must not share connections.
    connections.close_all()
    timeout = runner.settings().SHUTDOWN_TIMEOUT
    # A process that replaces another gets its name.
    base = runner.name or default_name()

    def work(number: int) -> int:
        runner.name = base if processes == 1 else f"{base}-{number + 1}"
        runner.number, runner.replaces = number, supervisor.replaced_by(number)
        code = command.work(runner)
        if command.ended in DONE:
            supervisor.note_done(number)
        return code

    supervisor = Supervisor(processes, work, timeout + 5, runner.parent)
    runner.requests, runner.parent = supervisor.requests, None
    return supervisor.run()
