"""``stator resume``: end pauses."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, Options, actor, refusing
from stator.commands.arguments import add_label, add_what, model_of, rows_of, state_of, where_of
from stator.texts import counted

HELP = "End the pauses of a model, or only those made with this state and these values."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the pauses to end."""
    add_label(parser)
    add_what(parser)


def run(options: Options) -> Answer:
    """End the pauses; return how many."""
    model = model_of(options["label"])
    state, where = state_of(model, options["state"]), where_of(options["where"])
    with refusing(ValueError):
        count = rows_of(model, options).resume(state, where, actor=actor())
    label = model._meta.label
    return Answer({"model": label, "resumed": count}, [f"{counted(count, 'pause')} of {label} ended."])
