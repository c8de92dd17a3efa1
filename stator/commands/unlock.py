"""``stator unlock``: end claims."""

from argparse import ArgumentParser
from dataclasses import replace

from stator.commands.answer import Answer, Options, actor, offer, refusing
from stator.commands.arguments import add_label, add_pks, model_of, pks_of, rows_of
from stator.commands.named import acted
from stator.rows.actions import Action
from stator.rows.unlocks import HOLDS, holders_of, unlock_and_hold

HELP = "End the claims on objects; workers that held them can no longer write."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the objects."""
    add_label(parser)
    add_pks(parser, "+")
    for hold in HOLDS:
        parser.add_argument(f"--{hold.name}", action="store_true", help=hold.summary)
    also = " or ".join(f"--{hold.name}" for hold in HOLDS)
    parser.add_argument("--reason", default="", metavar="R", help=f"With {also}: why." if also else "Why.")


def run(options: Options) -> Answer:
    """Unlock the objects; return how many were unlocked."""
    model = model_of(options["label"])
    pks = pks_of(model, options["pks"])
    rows = rows_of(model, options)
    meant = rows.filter(pk__in=pks)
    running = [str(holder) for holder in holders_of(meant) if holder.may_run]
    action = Action.of(model, "unlock", actor(), options["reason"])
    hold = next((each for each in HOLDS if options[each.name]), None)
    if hold is not None:
        with refusing(ValueError):
            count = unlock_and_hold(meant, action, hold)
    else:
        count = meant.unlock(action=action)
    data = {"model": model._meta.label, "unlocked": count, "may_run": running, "action": action.pk}
    done = "unlocked" if hold is None else f"unlocked and {hold.done}"
    answer = acted(rows, pks, count, data, done=done, otherwise="{others} not claimed")
    warnings = [f"It may still run: {holder}" for holder in running]
    return replace(answer, lines=[*answer.lines, *warnings, *offer(action, options)])
