"""``manage.py tasks retry``: make tasks due that wait for a limit, after it was raised."""

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options, actor, offer
from stator.logs import progress
from stator.models import Action
from stator.texts import counted
from tasks.actions.registry import declared
from tasks.commands.operating import named, number_of
from tasks.extensions.throttles.put_off import PutOff, put_off, waiting_for_limits
from tasks.models import Task
from tasks.rows.databases import home
from tasks.rows.tables import queue_rows


def add_subcommands(add: AddSubcommand) -> None:
    """Add the subcommand."""
    due = add("retry", "Make tasks due that wait for a limit of their action, after the limit was raised.", retry)
    due.add_argument("task_action", metavar="ACTION", help="The action.")
    due.add_argument("--queue", metavar="NAME", help="Only tasks of this queue.")
    due.add_argument("--yes", action="store_true", help="Even if the limit is what it was.")


def retry(options: Options) -> Answer:
    """Make tasks due that wait for a limit of their action."""
    name, queue = options["task_action"], named(options["queue"]) if options["queue"] else None
    waiting = put_off(home(), action=name, queue=queue.pk if queue else None)
    if not options["yes"] and (same := _as_before(waiting)):
        raise BadInput(f"{same} in this code, so they would be put off again; raise it first, or add --yes")
    action = Action.of(Task, "retry", actor())
    with progress("made due") as action.progress:
        count = waiting_for_limits(Task.stator.using(home()), name, queue.pk if queue else None).retry(action=action)
    line = f"{counted(count, 'task')} of {name} {'is' if count == 1 else 'are'} due now."
    return Answer({"retried": count, **number_of(action)}, [line, *offer(action, options)])


def _as_before(waiting: list[PutOff]) -> str:
    """Return the limit that tasks wait for if this code has the same; else an empty text."""
    for one in waiting:
        name = queue_rows(home()).filter(pk=one.queue).values_list("name", flat=True).first() or ""
        known, limit = declared(one.action, name), one.limit
        if known and (known.rate == limit.rate if limit.rate else known.concurrency == limit.concurrency):
            return f"action {one.action} has {limit.option} {limit.rate or limit.concurrency}"
    return ""
