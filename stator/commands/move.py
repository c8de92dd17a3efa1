"""``stator move``: move objects by hand."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, BadInput
from stator.commands.arguments import Options, actor, add_label, add_pks, model_of, pks_of, rows_of, target_of
from stator.commands.named import acted

HELP = "Move objects to a state by hand, ending any claim on them."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the objects, the target and the reason."""
    add_label(parser)
    parser.add_argument("state", metavar="STATE", help="The target state.")
    add_pks(parser, "+")
    parser.add_argument("--reason", required=True, metavar="R", help="Why; stored in the history of each object.")


def run(options: Options) -> Answer:
    """Move the objects; return how many were moved."""
    if not options["reason"].strip():
        raise BadInput("--reason is empty; give a reason, which the history shows")
    model = model_of(options["label"])
    state = target_of(model, str(options["state"]))
    pks = pks_of(model, options["pks"])
    rows = rows_of(model, options)
    count = rows.filter(pk__in=pks).move(state, actor=actor(), reason=options["reason"])
    data = {"model": model._meta.label, "state": state, "moved": count}
    return acted(rows, pks, count, data, done=f"moved to {state}", otherwise="{others} newer than this move")
