"""Subcommands of ``manage.py tasks`` for operators: list queues and dead letters, requeue, cancel, pause, resume."""

from dataclasses import asdict

from django.db.models import QuerySet

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options, actor, add_length, offer, refusing, table
from stator.commands.arguments import limit_of
from stator.graph.durations import seconds_of, span
from stator.logs import progress
from stator.models import Action, Now, moment_json, moment_text
from stator.texts import JsonObject, nearest
from tasks.exceptions import TaskError
from tasks.messages import BIGINT
from tasks.models import Queue, Task
from tasks.querysets import TaskQuerySet
from tasks.queue.attempt_counts import attempts_of
from tasks.queue.figures import figures_of
from tasks.queue.latest_errors import TaskFailure, errors_of
from tasks.queue.rules import queue_name_problem
from tasks.queue.serving import services_of
from tasks.rows.databases import home
from tasks.rows.tasks import READ_AT

MAX_QUEUES, MAX_LETTERS, MAX_NAMED = 1000, 10_000, 1000
HEADS = ["queue", "waiting", "oldest", "done", "later", "running", "dead", "workers", "paused"]
LETTER_HEADS = ["task", "queue", "action", "attempts", "errored", "the last error"]


def named(name: str) -> Queue:
    """Return the queue with this name, and the database's time as ``read_at``; raise an error if there is none."""
    if problem := queue_name_problem(name):
        raise BadInput(problem)
    queues: QuerySet[Queue] = QuerySet(Queue, using=home())
    queue = queues.filter(name=name).annotate(read_at=Now()).first()
    if queue is not None:
        return queue
    known = queues.order_by("name").values_list("name", flat=True)[:MAX_QUEUES]
    raise BadInput(f"there is no queue {name!r}; {nearest(name, known, 'see tasks queues')}")


# Subcommands


def add_subcommands(add: AddSubcommand) -> None:
    """Add the subcommands."""
    listed = "List queues: waiting, running and dead tasks, the oldest, workers and pauses of each."
    queues = add("queues", listed, list_queues)
    queues.add_argument("names", nargs="*", metavar="QUEUE", help="Only these queues.")
    dead = add("dead", "List dead letters, the latest first, each with its last error.", list_dead)
    dead.add_argument("--queue", metavar="NAME", help="Only dead letters of this queue.")
    limit_help = "Maximum number of dead letters (default: 20)."
    dead.add_argument("--limit", type=int, default=20, metavar="N", help=limit_help)
    again = add("requeue", "Requeue dead letters, with all their attempts.", requeue)
    again.add_argument("ids", nargs="*", type=int, metavar="TASK", help="Numbers of tasks.")
    again.add_argument("--queue", metavar="NAME", help="All dead letters of this queue, at most 10,000 at once.")
    pace_help = "How many become due per minute (default: all at once)."
    again.add_argument("--per-minute", type=float, metavar="N", help=pace_help)
    again.add_argument("--start-over", action="store_true", help="Run recorded steps again, with new keys.")
    end = add("cancel", "Cancel tasks that wait.", cancel)
    end.add_argument("ids", nargs="+", type=int, metavar="TASK", help="Numbers of tasks.")
    end.add_argument("--running", action="store_true", help="Also cancel tasks that workers have claimed.")
    for parser in (again, end):
        parser.add_argument("--reason", default="", metavar="R", help="Why; stored in the history of each object.")
    hold = add("pause", "Stop publishing to a queue, claiming from it, or both. Running tasks may finish.", pause)
    hold.add_argument("name", metavar="QUEUE", help="The queue.")
    hold.add_argument("--publish", action="store_true", help="Refuse new tasks.")
    hold.add_argument("--claim", action="store_true", help="Let no tasks be claimed.")
    add_length(hold)
    add("resume", "End both pauses of a queue.", resume).add_argument("name", metavar="QUEUE", help="The queue.")


# Lists


def list_queues(options: Options) -> Answer:
    """List all queues or the named ones, each with the counts of its tasks."""
    using = home()
    rows: QuerySet[Queue] = QuerySet(Queue, using=using).annotate(read_at=Now())
    queues = [named(name) for name in options["names"]] or list(rows.order_by("name")[:MAX_QUEUES])
    figures = figures_of(queues, using)
    data = []
    for queue, service in zip(queues, services_of(queues, using), strict=True):
        holds = {"publish": queue.publishing_paused, "claim": queue.claiming_paused}
        paused = [name for name, is_paused in holds.items() if is_paused]
        data.append({
            "queue": queue.name, "kind": queue.kind, **asdict(figures[queue.pk]), "workers": service.names,
            "paused": paused, "pause": queue.pause_description if paused else "",
        })  # fmt: skip
    return Answer(data, table(HEADS, map(_queue_row, data)) if data else ["There are no queues."])


def _queue_row(row: JsonObject) -> list[str]:
    paused = f"{' and '.join(row['paused'])}: {row['pause']}" if row["paused"] else "-"
    oldest = "-" if row["oldest"] is None else span(row["oldest"])
    counts = [row[name] for name in ("later", "running", "dead")]
    return [row["queue"], row["waiting"], oldest, row["done"] or "-", *counts, str(len(row["workers"])), paused]


def list_dead(options: Options) -> Answer:
    """List dead letters, the latest first."""
    limit = limit_of(options, MAX_LETTERS)
    dead = Task.objects.using(home()).dead_letters()
    if options["queue"]:
        dead = dead.filter(queue=named(options["queue"]))
    latest = dead.select_related("queue").annotate(**READ_AT).order_by("-state_next_attempt", "-state_changed")
    letters = list(latest[:limit])
    attempts, errors = attempts_of(letters, home()), errors_of((task.pk for task in letters), home())
    data = [_letter(task, attempts[task.pk], errors.get(task.pk)) for task in letters]
    if not data:
        return Answer(data, ["There are no dead letters."])
    more = [f"There may be more; raise --limit {limit}."] * (len(data) == limit)
    rows = [[str(one["task"]), *(one[name] for name in ("queue", "action")), str(one["attempts"]),
             f"{span(one['age'])} ago", one["error"] or "-"] for one in data]  # fmt: skip
    return Answer(data, [*table(LETTER_HEADS, rows), *more])


def _letter(task: Task, attempts: int, error: TaskFailure | None) -> JsonObject:
    return {
        "task": task.pk, "queue": task.queue.name, "action": task.action, "key": task.key, "attempts": attempts,
        "age": seconds_of(task.read_at - task.state_changed), "error": error.line if error else "",
    }  # fmt: skip


# Actions


def requeue(options: Options) -> Answer:
    """Requeue dead letters and report how many."""
    ids, name = options["ids"], options["queue"]
    if bool(ids) == bool(name):
        raise BadInput("choose dead letters: either their numbers, or --queue NAME; see tasks dead")
    rows = Task.objects.using(home()).filter(queue=named(name)) if name else rows_of_numbers(ids)
    action = Action.of(Task, "requeue", actor(), options["reason"], moves=True)
    with refusing(TaskError, option="--per-minute"), progress("requeued") as action.progress:
        done = rows.requeue(per_minute=options["per_minute"], action=action, start_over=options["start_over"])
    count, due = done.count, done.last_due
    requeued = f"{count:,} of {len(ids):,} requeued" if ids else f"{count:,} of queue {name} requeued"
    others = (
        "; only errored tasks that are not part of another task can be requeued" if ids and count < len(ids) else ""
    )
    if name and rows.dead_letters().exists():
        others = "; there are more: repeat the command after these are done"
    until = f"; the last is due at {moment_text(due)}" if due else ""
    data = {"requeued": count, "named": len(ids), "last_due": due and moment_json(due), **number_of(action)}
    return Answer(data, [f"{requeued}{until}{others}.", *offer(action, options)])


def cancel(options: Options) -> Answer:
    """Cancel tasks and report how many."""
    ids = options["ids"]
    action = Action.of(Task, "cancel", actor(), options["reason"], moves=True)
    count = rows_of_numbers(ids).cancel(running=options["running"], action=action)
    others = "; the others are gone, have ended, or are running (--running cancels these)" if count < len(ids) else ""
    data = {"canceled": count, "named": len(ids), **number_of(action)}
    return Answer(data, [f"{count:,} of {len(ids):,} canceled{others}.", *offer(action, options)])


def number_of(action: Action) -> dict[str, list[int]]:
    """Return the number of the action, for its undo; none if nothing was done."""
    return {"actions": [] if action.pk is None else [action.pk]}


def pause(options: Options) -> Answer:
    """Pause a queue and return its pauses."""
    queue = named(options["name"])
    if not (options["publish"] or options["claim"]):
        raise BadInput("choose what to pause: --publish, --claim or both")
    given = {name: options[name] for name in ("publish", "claim", "reason", "seconds")}
    with refusing(TaskError, option="--for"):
        queue.pause(**given, author=actor())
    return Answer(_pauses_of(queue), [f"Queue {queue.name}: {queue.pause_line}."])


def resume(options: Options) -> Answer:
    """Resume a queue and return its pauses."""
    queue = named(options["name"])
    queue.resume(author=actor())
    return Answer(_pauses_of(queue), [f"Queue {queue.name} is resumed."])


def _pauses_of(queue: Queue) -> JsonObject:
    until = moment_json(queue.pause_until) if queue.pause_until else None
    return {"queue": queue.name, "publish": queue.publish_paused, "claim": queue.claim_paused, "until": until}


def rows_of_numbers(ids: list[int]) -> TaskQuerySet:
    """Return the tasks with these numbers."""
    if len(ids) > MAX_NAMED:
        raise BadInput(f"{len(ids):,} are too many; name at most {MAX_NAMED:,} tasks at once")
    for pk in ids:
        if not 0 < pk < BIGINT:
            raise BadInput(f"{pk} cannot be the number of a task; see tasks dead")
    return Task.objects.using(home()).filter(pk__in=ids)
