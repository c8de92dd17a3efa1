"""``runstator --schema``."""

from argparse import ArgumentParser

from stator.commands.answer import Options


def add_arguments(parser: ArgumentParser) -> None:
    """Add the schemas that a worker serves."""
    schema_help = "Work in this schema of PostgreSQL; repeatable (default: the setting SCHEMAS)."
    parser.add_argument("--schema", dest="schemas", action="append", metavar="NAME", help=schema_help)


def take(options: Options) -> None:
    """Leave the names to the worker, which says which of them are wrong."""
