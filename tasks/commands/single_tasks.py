"""Subcommands of ``manage.py tasks`` about single tasks: publish one, list them, show one."""

import json

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options, refusing, table
from stator.commands.arguments import json_of, limit_of, where_of
from stator.graph.durations import seconds_of, span
from stator.models import moment_json, moment_text
from stator.texts import Json, JsonObject
from tasks.commands.operating import named, rows_of_numbers
from tasks.exceptions import TaskError
from tasks.messages import COLUMNS, NUMBERS, OPTIONS, PLAIN, TEXTS
from tasks.models import Task
from tasks.querysets import STATUSES
from tasks.queue.runs import of_task
from tasks.rows.databases import home
from tasks.rows.tasks import READ_AT

MAX_LISTED, MAX_RUNS = 10_000, 20
HEADS = ["task", "queue", "action", "status", "attempts", "published", "key"]
RUN_HEADS = ["worker", "began", "outcome", "reason"]

# The options of a new task that have arguments of their own names.
OWN_ARGUMENTS = tuple(name for name in PLAIN if name != "action")
# What ``show`` says of a task besides its status, each if it has a value.
SHOWN = tuple(name for name in COLUMNS if name != "action")


def add_subcommands(add: AddSubcommand) -> None:
    """Add the subcommands."""
    new = add("publish", "Publish a task; print its number, and whether it is new.", publish)
    new.add_argument("name", metavar="QUEUE", help="The queue.")
    new.add_argument("task_action", metavar="ACTION", help=OPTIONS["action"].metadata["says"])
    new.add_argument(
        "--data", metavar="JSON", help=f"{OPTIONS['data'].metadata['says']} For instance '{{\"image\": 7}}'."
    )
    new.add_argument(
        "--update", action="store_true", help="If a task of this key waits, write the given values into it."
    )
    metadata_help = f"{OPTIONS['metadata'].metadata['says']} VALUE is JSON, else a text; repeatable."
    new.add_argument("--metadata", action="append", default=[], metavar="NAME=VALUE", help=metadata_help)
    worker_help = "Only this worker may claim it; repeatable."
    new.add_argument("--worker", action="append", default=[], metavar="NAME", help=worker_help)
    for name in OWN_ARGUMENTS:
        kind, shown = _kind_of(name)
        text = OPTIONS[name].metadata["says"].replace("%", "%%")
        new.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=shown, help=text)
    listed = add("list", "List tasks, the latest first.", list_tasks)
    listed.add_argument("--queue", metavar="NAME", help="Only tasks of this queue.")
    listed.add_argument("--status", choices=STATUSES, help="Only tasks with this status.")
    listed.add_argument("--action", metavar="NAME", dest="task_action", help="Only tasks of this action.")
    listed.add_argument("--limit", type=int, default=20, metavar="N", help="Maximum number of tasks (default: 20).")
    one = add("show", "Show a task: its data, its attempts, its result, and why it does not move.", show)
    one.add_argument("number", type=int, metavar="TASK", help="Number of the task.")


def _kind_of(name: str) -> tuple[type[str | int | float], str]:
    """Return the type of an argument, and how the help shows its value."""
    if name in TEXTS:
        return str, name.upper()
    return (int, "N") if NUMBERS[name][2] else (float, "SECONDS")


def publish(options: Options) -> Answer:
    """Publish a task and report its outcome."""
    queue = named(options["name"])
    given = {name: options[name] for name in OWN_ARGUMENTS if options[name] is not None}
    if metadata := where_of(options["metadata"], "--metadata"):
        given["metadata"] = metadata
    if options["worker"]:
        given["worker_ids"] = options["worker"]
    value: Json = json_of("--data", options["data"])
    with refusing(TaskError):
        published = queue.publish(options["task_action"], value, update=options["update"], **given)
    task, outcome = published.task, str(published.outcome)
    data = {"task": task.pk, "queue": queue.name, "outcome": outcome, "status": task.status}
    return Answer(data, [f"Task {task.pk} in queue {queue.name}: {outcome}, {task.status}."])


def list_tasks(options: Options) -> Answer:
    """List tasks, the latest first."""
    limit = limit_of(options, MAX_LISTED)
    tasks = Task.objects.using(home())
    if options["queue"]:
        tasks = tasks.filter(queue=named(options["queue"]))
    if options["status"]:
        tasks = tasks.with_status(options["status"])
    if options["task_action"]:
        tasks = tasks.filter(action=options["task_action"])
    latest = tasks.select_related("queue").annotate(**READ_AT).order_by("-pk")
    data = [_listed(task) for task in latest[:limit]]
    rows = [[*(str(one[name] or "-") for name in HEADS[:4]), str(one["attempts"]), f"{span(one['age'])} ago",
             one["key"] or "-"] for one in data]  # fmt: skip
    more = [f"There may be more; raise --limit {limit}."] * (len(data) == limit)
    return Answer(data, [*table(HEADS, rows), *more] if data else ["There are no such tasks."])


def show(options: Options) -> Answer:
    """Show a task with its latest runs and the reasons why it does not move."""
    task = rows_of_numbers([options["number"]]).select_related("queue").annotate(**READ_AT).first()
    if task is None:
        raise BadInput(f"there is no task {options['number']}; see tasks list")
    reasons, runs = task.explain(), list(of_task(task).order_by("-pk")[:MAX_RUNS])
    values = {name: getattr(task, name) for name in SHOWN}
    data = {
        **_listed(task), **values, "results": task.results,
        "runs": [
            {"worker": run.worker, "claimed": moment_json(run.claimed), "outcome": run.outcome, "reason": run.reason}
            for run in runs
        ],
        "reasons": [{"code": reason.code, "sentence": reason.sentence} for reason in reasons],
    }  # fmt: skip
    lines = [f"Task {task.pk}, {task.action} in queue {task.queue.name}: {task.status}, attempts {data['attempts']}"]
    lines += [f"{name}: {_text(value)}" for name, value in values.items() if value not in (None, [], {}, "")]
    lines += [f"result: {_text(result)}" for result in data["results"]]
    lines += [f"why: {reason.sentence}" for reason in reasons]
    runs_told = [
        [run.worker, moment_text(run.claimed), run.outcome or "running", run.reason.strip().rpartition("\n")[2] or "-"]
        for run in runs
    ]
    return Answer(data, [*lines, *(table(RUN_HEADS, runs_told) if runs_told else [])])


def _listed(task: Task) -> JsonObject:
    return {
        "task": task.pk, "queue": task.queue.name, "action": task.action, "key": task.key,
        "status": task.status, "attempts": task.attempts, "age": seconds_of(task.read_at - task.created),
    }  # fmt: skip


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
