"""``stator unlock``: end claims."""

from argparse import ArgumentParser

from stator.commands.answer import Answer
from stator.commands.arguments import Options, actor, add_label, add_pks, model_of, pks_of, rows_of
from stator.commands.named import acted

HELP = "End the claims on objects; workers that held them can no longer write."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the objects."""
    add_label(parser)
    add_pks(parser, "+")


def run(options: Options) -> Answer:
    """Unlock the objects; return how many were unlocked."""
    model = model_of(options["label"])
    pks = pks_of(model, options["pks"])
    rows = rows_of(model, options)
    count = rows.filter(pk__in=pks).unlock(actor=actor())
    data = {"model": model._meta.label, "unlocked": count}
    return acted(rows, pks, count, data, done="unlocked", otherwise="{others} not claimed")
