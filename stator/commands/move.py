"""``stator move``: move objects by hand."""

from argparse import ArgumentParser
from dataclasses import replace

from stator.commands.answer import Answer, BadInput, Options, actor, offer, refusing
from stator.commands.arguments import add_label, add_pks, first_of, model_of, pks_of, rows_of, target_of
from stator.commands.named import acted
from stator.exceptions import ProtectedState
from stator.logs import progress
from stator.querysets import OperatorQuerySet
from stator.rows.actions import Action

START_OVER = "Run recorded steps again, with new idempotency keys, where a visit that failed would be continued."
HELP = "Move objects to a state by hand, ending any claim on them."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the objects, the target and the reason."""
    add_label(parser)
    parser.add_argument("state", metavar="STATE", help="The target state.")
    add_pks(parser, "*")
    parser.add_argument("--state", metavar="OLD", dest="from_state", help="All objects in this state, known or not.")
    parser.add_argument("--limit", type=int, metavar="N", help="With --state: maximum number of objects.")
    parser.add_argument("--start-over", action="store_true", help=START_OVER)
    parser.add_argument("--reason", required=True, metavar="R", help="Why; stored in the history of each object.")


def run(options: Options) -> Answer:
    """Move the objects; return how many were moved."""
    if not options["reason"].strip():
        raise BadInput("--reason is empty; give a reason, which the history shows")
    model = model_of(options["label"])
    state = target_of(model, options["state"])
    pks = pks_of(model, options["pks"])
    rows = rows_of(model, options)
    if bool(pks) == bool(options["from_state"]):
        raise BadInput("choose objects: either their keys, or --state OLD")
    if options["from_state"]:
        return _move_all(rows, options, state)
    action, count = _moved(rows.filter(pk__in=pks), state, options)
    data = {"model": model._meta.label, "state": state, "moved": count, "action": action.pk}
    done = acted(rows, pks, count, data, done=f"moved to {state}", otherwise="{others} newer than this move")
    return replace(done, lines=[*done.lines, *offer(action, options)])


def _move_all(rows: OperatorQuerySet, options: Options, state: str) -> Answer:
    """Move every object in a state, even if the code does not know the state any more."""
    old = options["from_state"]
    if old == state:
        raise BadInput(f"--state {old} is the target itself")
    action, count = _moved(first_of(rows.in_state(old), options).in_state(old), state, options)
    label = rows.model._meta.label
    data = {"model": label, "from": old, "state": state, "moved": count, "action": action.pk}
    return Answer(data, [f"{count:,} of {label} moved from {old} to {state}.", *offer(action, options)])


def _moved(rows: OperatorQuerySet, state: str, options: Options) -> tuple[Action, int]:
    action = Action.of(rows.model, "move", actor(), options["reason"], moves=True)
    with refusing(ProtectedState), progress(f"moved to {state}") as action.progress:
        return action, rows.move(state, action=action, start_over=options["start_over"])
