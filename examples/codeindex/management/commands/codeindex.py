"""The command ``codeindex``: brings the index of a directory up to date, and serves it in the admin."""

import sys
import time
from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter, OutputWrapper
from django.db import DatabaseError

from examples.codeindex.directory import checked_directory, refusal
from examples.codeindex.kill import kill_and_undo
from examples.codeindex.models import SourceFile
from examples.codeindex.progress import Progress
from examples.codeindex.reconcile import reconcile
from examples.codeindex.report import json_line, summary
from examples.codeindex.rows import Outcome, compare, rows_of
from examples.codeindex.scan import Scan, scan
from examples.codeindex.serve import DEFAULT_ADDRESS, checked_address, serve
from examples.codeindex.text import printable
from examples.codeindex.work import work_until_rest

EPILOG = """\
examples:
  manage.py codeindex                  index the installed Django
  manage.py codeindex src              index your project; run it again after an edit: only that file moves
  manage.py codeindex src --json       the same, for a program
  manage.py codeindex src --serve      the same, then serve the admin
  manage.py codeindex --kill           then kill a worker in mid-flight, and undo a wrong bulk move (30 s)

With --json the last line of the output is {"files": n, "moved": n, "failed": n, "seconds": s}:
  files    rows of PATH whose file exists
  moved    rows that changed their state in this run: new, changed, touched and vanished files
  failed   moved rows that are broken now, because their file cannot be read or parsed
  seconds  from the start of the scan until all rows are at rest

Hidden directories, __pycache__ and links to directories are left out.
Exit codes: 0 all files are at rest, indexed or broken; 1 some are not; 2 PATH, options or database cannot be used.
"""

HINT = "To see the result in the admin, run this again with --serve"
UNFINISHED = "{} files are not at rest; run this again, or see them in the admin with --serve"


class Formatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the line breaks of the examples."""


class Command(BaseCommand):
    help = "Index the Python files of a directory with a Stator worker: only what changed since the last run moves."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(prog_name, subcommand, epilog=EPILOG, formatter_class=Formatter, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="?", metavar="PATH", help="What to index (default: the installed Django).")
        parser.add_argument("--json", action="store_true", help="Print one line of JSON; all else goes to stderr.")
        parser.add_argument(
            "--kill", action="store_true", help="Then kill -9 a worker that is at work, and undo a wrong bulk move."
        )
        parser.add_argument(
            "--serve",
            nargs="?",
            const=DEFAULT_ADDRESS,
            metavar="ADDRPORT",
            help=f"Then serve the admin, with a login and a worker (default: {DEFAULT_ADDRESS}).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        address = None if options["serve"] is None else checked_address(options["serve"])
        directory = checked_directory(options["path"])
        console = OutputWrapper(options.get("stderr") or sys.stderr) if options["json"] else self.stdout
        try:
            outcome, seconds = self._run(directory, console)
            if options["kill"] and not outcome.unfinished:
                kill_and_undo(directory, console)
        except KeyboardInterrupt:
            raise CommandError("interrupted; run this again to continue", returncode=130) from None
        if options["json"]:
            self.stdout.write(json_line(outcome, seconds))
        if outcome.unfinished:
            raise CommandError(UNFINISHED.format(outcome.unfinished), returncode=1)
        if address:
            serve(address, console)
        else:
            console.write(HINT)

    def _run(self, directory: str, console: Any) -> tuple[Outcome, float]:
        started = time.monotonic()
        found = _scan(directory)
        console.write(f"Indexing {printable(directory)}")
        before = reconcile(directory, found)
        with Progress(directory, console):
            work_until_rest(directory)
        outcome, seconds = compare(before, rows_of(directory)), time.monotonic() - started
        for line in summary(directory, outcome, found, seconds):
            console.write(line)
        return outcome, seconds


def _scan(directory: str) -> Scan:
    """Return the files of a directory; raise `CommandError` if it has none and has none in the index."""
    try:
        found = scan(directory)
    except OSError as error:
        raise refusal(directory, str(error.strerror).lower()) from None
    try:
        known = SourceFile.objects.filter(root=directory).exists()
    except DatabaseError as error:
        raise CommandError(
            f"The tables of the index cannot be used ({error}); run manage.py migrate", returncode=2
        ) from None
    if not (known or found.files):
        raise refusal(directory, "no Python files")
    return found
