"""The command ``runstator``: checks its options and runs a worker, or what an extension runs in its place."""

import os
import sys
from argparse import RawDescriptionHelpFormatter
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser, DjangoHelpFormatter
from django.db import connections

from stator.batteries import extensions
from stator.commands.answer import BadInput, Options
from stator.commands.arguments import check_database_name, named_model, where_of
from stator.logs import ProgressLine, events_to, log_end
from stator.models import StatorModel
from stator.rows.meta import managed
from stator.runner import StatorRunner
from stator.terminal import BAD, UNUSABLE, TerminalCommand
from stator.texts import WORKER_NAME, WORKER_NAME_RULE, escape
from stator.worker.around import end_extensions
from stator.worker.connections import own_connections
from stator.worker.startup import Unusable, check_database, collect_rarely

FORCED = 130

# The model that has queues.
QUEUED = "tasks.Task"

EPILOG = """
examples:
  runstator                            work on every managed model until SIGTERM or Ctrl-C
  runstator shop.Invoice -c 20         only invoices, at most 20 attempts at once
  runstator -x shop.Import             everything but imports
  runstator tasks.Task --queue mail    only tasks of the queue mail
  runstator --exclude-queue slow       everything but the tasks of the queue slow
  runstator --metadata region=eu       of the tasks only those with this value in their metadata
  runstator --processes 4              four processes; one that ends is replaced
  runstator --name bot                 the name by which tasks choose their workers: worker_ids
  runstator --schema acme --schema bolt     two schemas of PostgreSQL, one for each tenant
  runstator --reload                   for development: a new worker when code changes
  runstator --until-idle               work until nothing is ready, then exit 0

signals:  SIGTERM or SIGINT stops gracefully, a second one stops at once; with --processes send it to the parent.
  SIGQUIT dumps all stacks. Workers stop if their parent is gone.
exit codes:  0 stopped or idle, 2 bad arguments or settings, 1 or 70 a frozen worker ended itself,
  75 the database cannot be used or every model lacks a column, 130 forced to stop.
"""


class HelpFormatter(RawDescriptionHelpFormatter, DjangoHelpFormatter):
    """Keeps the line breaks of the examples."""


class Command(TerminalCommand):
    """``manage.py runstator``."""

    name = "runstator"
    help = "Runs a worker: claims ready objects, attempts them and records the outcomes."

    # Why the worker of this process has ended, and how many attempts it left that do not end.
    ended, _unfinished = "", 0

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: object) -> CommandParser:
        """Return the parser, with examples at the end of its help."""
        parser = super().create_parser(prog_name, subcommand, epilog=EPILOG, formatter_class=HelpFormatter, **kwargs)
        self.one_line_errors(parser)
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options; values that are not given come from the ``STATOR`` settings."""
        add = parser.add_argument
        add("model_labels", nargs="*", metavar="app.Model", help="Models to work on (default: all managed models).")
        leave_out = "A model to leave out; repeatable."
        add("-x", "--exclude", action="append", default=[], metavar="app.Model", help=leave_out)
        name_help = "The worker's name; several processes get it with -1, -2 ... (default: HOST:PID)."
        add("--name", default="", help=name_help)
        queue_help = "Claim only tasks of this queue; repeatable. If no models are named, all others are worked on too."
        add("--queue", action="append", default=[], metavar="NAME", help=queue_help)
        spare_help = "Claim no tasks of this queue; repeatable."
        add("--exclude-queue", action="append", default=[], metavar="NAME", help=spare_help)
        metadata_help = "Claim only tasks whose metadata has this value (JSON, else a text); repeatable."
        add("--metadata", action="append", default=[], metavar="NAME=VALUE", help=metadata_help)
        add("-c", "--concurrency", type=int, metavar="N", help="Attempts at once in one process.")
        add("--concurrency-per-model", type=int, metavar="N", help="The same of one model; 0: no limit.")
        add("--database", metavar="ALIAS", help="Work in this database instead of where the routers write each model.")
        add("-s", "--schedule-interval", type=float, metavar="SECONDS", help="Interval of scheduling passes.")
        run_help = "Stop after this long (default: never)."
        add("-r", "--run-for", type=float, default=0.0, metavar="SECONDS", help=run_help)
        add("--until-idle", action="store_true", help="Stop when nothing is ready or running.")
        add("--shutdown-timeout", type=float, metavar="SECONDS", help="How long to wait for attempts when stopping.")
        add("--json-logs", action="store_true", help="Log events as JSON, one object per line.")
        for module in _arguments():
            module.add_arguments(parser)

    def handle(self, *args: object, **options: Any) -> None:
        """Check the options, then work; exit with one of the codes above."""
        try:
            runner = self._runner(options)
        except BadInput as error:
            raise CommandError(str(error), returncode=BAD) from error
        if self.is_on_its_own:
            _leave_pools()
        with events_to(self._errors, options["json_logs"]):
            code = self._run(runner, options)
        if self.is_on_its_own and (code or self._unfinished):
            # The interpreter would wait for the thread of a handler that does not end.
            _exit(code)
        if code:
            # A program that calls the command may catch this and continue.
            sys.exit(code)

    def say(self, text: str) -> None:
        """Write a line to the errors."""
        self.stderr.write(escape(f"runstator: {text}"))

    @property
    def _errors(self) -> Any:
        """The stream for errors, without Django's wrapper, which adds a line break to each write."""
        return self.stderr._out

    def _run(self, runner: StatorRunner, options: Options) -> int:
        for module in _arguments():
            # Most extensions work within this process.
            instead = getattr(module, "instead", None)
            if instead and (code := instead(self, runner, options)) is not None:
                return int(code)
        return self.work(runner)

    def _runner(self, options: Options) -> StatorRunner:
        for module in _arguments():
            module.take(options)
        _check_numbers(options)
        models = _chosen(options["model_labels"], options["exclude"])
        _check_queues(options, models)
        metadata = _metadata(options["metadata"], models)
        _check_name(options["name"])
        check_database_name(options["database"])
        # The options that a runner has by the same names.
        given = {each.name: options[each.name] for each in fields(StatorRunner) if each.name in options}
        given |= {
            "models": models, "watch": True, "announce": True, "queues": tuple(dict.fromkeys(options["queue"])),
            "excluded_queues": tuple(dict.fromkeys(options["exclude_queue"])), "metadata": metadata,
            "command": options, "has_process": self.is_on_its_own,
        }  # fmt: skip
        runner = StatorRunner(**given)
        try:
            runner.settings()
        except ImproperlyConfigured as error:
            raise BadInput(_blamed(str(error), options)) from error
        return runner

    def work(self, runner: StatorRunner) -> int:
        """Work in this process; return the exit code."""
        try:
            # The result is kept, because a later check may find other schemas, or no database.
            runner.scopes = runner.scopes_to_serve()
            check_database(list(runner.models or ()), runner.database, runner.scopes)
            return self._serve(runner)
        except Unusable as error:
            for line in str(error).splitlines():
                self.say(line)
            return UNUSABLE
        except BadInput as error:
            self.say(str(error))
            return BAD

    def _serve(self, runner: StatorRunner) -> int:
        runner.progress = ProgressLine(self._errors)
        collect_rarely()
        _close_connections()
        try:
            summary = runner.run()
        finally:
            runner.progress.close()
        log_end(summary)
        self.ended, self._unfinished = summary.ended, summary.unfinished
        if summary.forced:
            return FORCED
        # Processes under a supervisor end without running exit handlers.
        end_extensions(runner.settings())
        return 0


def _arguments() -> list[ModuleType]:
    """Return the modules of extensions that have arguments."""
    return [import_module(path) for extension in extensions() for path in extension.arguments]


def _leave_pools() -> None:
    """Close Django's pools, which checks may have opened: workers use none, and a fork must not share them."""
    connections.close_all()
    connection: Any
    for connection in connections.all():
        if (connection.settings_dict.get("OPTIONS") or {}).get("pool"):
            connection.close_pool()
    own_connections(watch=False)


def _close_connections() -> None:
    """Close the main thread's connections: a worker has its own, and this thread needs none."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def _chosen(labels: list[str], excluded: list[str]) -> list[type[StatorModel]]:
    known = managed(StatorModel.subclasses)
    chosen = [named_model(label) for label in labels] if labels else known
    left_out = [named_model(label) for label in excluded]
    models = [model for model in managed(chosen) if model not in managed(left_out)]
    if not models:
        raise BadInput("no models are left to work on; name models like app.Model, or exclude fewer")
    return models


def _check_numbers(options: Options) -> None:
    """Refuse numbers that are no settings, which are checked as such."""
    if not 0 <= options["run_for"] < float("inf"):
        raise BadInput(f"--run-for {options['run_for']} must be a number of seconds, at least 0")


def _check_queues(options: Options, models: list[type[StatorModel]]) -> None:
    given = [(option, name) for option in ("queue", "exclude_queue") for name in options[option]]
    for option, name in given:
        text = f"--{option.replace('_', '-')} {name[:40]!r}"
        if not any(model._meta.label == QUEUED for model in models):
            raise BadInput(f"{text} needs {QUEUED}, which this worker does not serve; add {QUEUED} to the models")
        if not 0 < len(name) <= 100 or "\0" in name or "/" in name:
            raise BadInput(f"{text} is not a valid queue name; use 1 to 100 characters other than /")
    if both := sorted(set(options["queue"]) & set(options["exclude_queue"])):
        raise BadInput(f"--exclude-queue {both[0]!r} is a --queue as well; leave one of them out")


def _metadata(pairs: list[str], models: list[type[StatorModel]]) -> dict[str, object]:
    where = where_of(pairs, "--metadata") or {}
    if where and not any(model._meta.label == QUEUED for model in models):
        raise BadInput(f"--metadata {pairs[0]!r} needs {QUEUED}, which this worker does not serve; add {QUEUED}")
    for name, value in where.items():
        if not isinstance(value, str | int | float | bool):
            raise BadInput(f"--metadata {name}={value!r:.80} must be a text, a number, true or false")
    return where


def _check_name(name: str) -> None:
    if name and not WORKER_NAME.fullmatch(name):
        raise BadInput(f"--name {name[:40]!r} must be {WORKER_NAME_RULE}")


def _blamed(message: str, options: Options) -> str:
    """Return the message with the name of the option instead of the setting, if the value comes from an option."""
    for name in ("concurrency", "concurrency_per_model", "schedule_interval", "shutdown_timeout"):
        setting, option = f"STATOR setting: {name.upper()}={options[name]} ", f"--{name.replace('_', '-')}"
        message = message.replace(setting, f"{option} {options[name]} ")
    return message


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
