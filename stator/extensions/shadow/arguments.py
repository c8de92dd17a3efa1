"""``runstator --shadow``: models that this worker only looks at."""

from argparse import ArgumentParser

from stator.commands.answer import Options
from stator.commands.arguments import model_of
from stator.extensions.shadow.options import put_in_shadow


def add_arguments(parser: ArgumentParser) -> None:
    """Add the models."""
    parser.add_argument(
        "--shadow", action="append", default=[], metavar="app.Model",
        help="Run nothing for this model, and record what would be done; repeatable.",
    )  # fmt: skip


def take(options: Options) -> None:
    """Put the models into shadow in this process, and in those that it starts."""
    for label in options["shadow"]:
        put_in_shadow(model_of(label), True)
