"""``stator undo``: undo a manual action."""

from argparse import ArgumentParser

from django.db import DEFAULT_DB_ALIAS
from django.db.models import F, QuerySet

from stator.commands.answer import Answer, Figures, Options, actor, offer, refusing, table
from stator.extensions.undo.models import UNDONE_WITHIN
from stator.extensions.undo.undoing import Undone, undo
from stator.graph.durations import seconds_of, span
from stator.logs import progress
from stator.rows.actions import Action, recent_actions
from stator.rows.clock import Now
from stator.texts import counted

HELP = (
    "Undo a manual action of the last hour: move, retry, unlock, pause, and cancel or requeue of tasks. Objects that "
    "nobody has touched since get the state, attempts and due time that they had; the others are named and left alone. "
    "Without a number it lists the actions. An undo can be undone, too."
)
HEADS = ["action", "what", "objects", "model", "who", "when", "why"]

# Actions that are listed, and objects that are named in lines; --json has all.
MAX_LISTED, MAX_NAMED = 50, 20


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action and the reason."""
    number_help = "The number of the action, which the command that did it has printed. Without it: list the actions."
    parser.add_argument("action", nargs="?", type=int, metavar="ACTION", help=number_help)
    parser.add_argument("--reason", default="", metavar="R", help="Why; stored in the history of each object.")


def run(options: Options) -> Answer:
    """Undo the action, or list the actions that can be undone."""
    using = options["database"] or DEFAULT_DB_ALIAS
    if options["action"] is None:
        return _list(recent_actions(using))
    with refusing(ValueError), progress("went back") as shown:
        done = undo(options["action"], using, actor=actor(), reason=options["reason"], progress=shown)
    left = len(done.left) + done.unnamed
    data = {
        "undone": options["action"], "action": done.action.pk, "count": done.count, "left": left,
        "named": done.left,
    }  # fmt: skip
    lines = [f"{done.count:,} of {counted(done.count + left, 'object')} went back.", *_lines_of(done, left)]
    return Answer(data, [*lines, *offer(done.action, options)], int(not done.count))


def offered(action: Action, options: Options) -> str:
    """Return the line that says how to undo an action."""
    alias, schema = action._state.db or DEFAULT_DB_ALIAS, options.get("schema")
    where = [f" --database {alias}"] * (alias != DEFAULT_DB_ALIAS) + [f" --schema {schema}"] * bool(schema)
    return f"To undo this within {span(UNDONE_WITHIN)}: manage.py stator undo {action.pk}{''.join(where)}"


def _lines_of(done: Undone, left: int) -> list[str]:
    named = [f"Left alone: {key} {why}" for key, why in list(done.left.items())[:MAX_NAMED]]
    more = [f"Left alone: {left - MAX_NAMED:,} more; --json names them"] * (left > MAX_NAMED)
    return named + more


def _list(actions: QuerySet[Action]) -> Answer:
    listed = list(actions.annotate(age=Now() - F("at"))[:MAX_LISTED])
    undone = set(actions.filter(undoes__in=[one.pk for one in listed]).values_list("undoes", flat=True))
    data = [
        {
            "action": one.pk, "kind": one.kind, "count": one.count, "model": one.model_label, "actor": one.actor,
            "age": seconds_of(one.age), "reason": one.reason, "undoes": one.undoes, "undone": one.pk in undone,
        }
        for one in listed
    ]  # fmt: skip
    if not data:
        return Answer(data, [f"Nobody has changed objects by hand in the last {span(UNDONE_WITHIN)}."])
    return Answer(data, [*table(HEADS, map(_row, data)), "Undo one: manage.py stator undo ACTION"])


def _row(one: Figures) -> list[str]:
    what = f"undo of {one['undoes']}" if one["undoes"] else one["kind"]
    what += " (undone)" * one["undone"]
    names = [one[name] or "-" for name in ("model", "actor")]
    return [str(one["action"]), what, f"{one['count']:,}", *names, f"{span(one['age'])} ago", one["reason"] or "-"]
