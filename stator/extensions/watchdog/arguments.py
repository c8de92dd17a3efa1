"""``runstator --liveness-file``."""

import os
from argparse import ArgumentParser
from pathlib import Path

from stator.commands.answer import BadInput, Options


def add_arguments(parser: ArgumentParser) -> None:
    """Add the file."""
    liveness_help = "A file that is rewritten every few seconds while the worker lives."
    parser.add_argument("--liveness-file", metavar="PATH", help=liveness_help)


def take(options: Options) -> None:
    """Refuse a file that cannot be written."""
    path = options["liveness_file"]
    if path is None:
        return
    folder = Path(path).parent
    if not path or Path(path).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise BadInput(
            f"--liveness-file {path!r} cannot be written; name a file in a folder that this process can write to"
        )
