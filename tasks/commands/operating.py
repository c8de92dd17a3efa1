"""Subcommands of ``manage.py tasks`` for operators: list queues and dead letters, requeue, cancel, pause, resume."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from stator.commands.answer import (
    AddSubcommand,
    Answer,
    BadInput,
    Options,
    actor,
    add_length,
    offer,
    progress,
    refusing,
    table,
)
from stator.graph.durations import seconds_of, span
from stator.models import Action, Now, moment_text
from tasks.diagnosis.figures import add_figures
from tasks.exceptions import TaskError
from tasks.models import Queue, Task
from tasks.queue.attempt_counts import attempts_of
from tasks.queue.explaining import last_error
from tasks.queue.rules import queue_name_problem
from tasks.rows.queues import home
from tasks.sharding.task_ids import database_of, in_order

MAX_QUEUES, MAX_LETTERS, MAX_NAMED = 1000, 10_000, 1000
HEADS = ["queue", "waiting", "oldest", "later", "running", "dead", "workers", "paused"]
LETTER_HEADS = ["task", "queue", "action", "attempts", "errored", "the last error"]


def named(name: str) -> Any:
    """Return the queue with this name, and the database's time as ``read_at``; raise an error if there is none."""
    if problem := queue_name_problem(name):
        raise BadInput(problem)
    queues: QuerySet[Queue] = QuerySet(Queue, using=home())
    queue = queues.filter(name=name).annotate(read_at=Now()).first()
    if queue is not None:
        return queue
    close = get_close_matches(name, queues.order_by("name").values_list("name", flat=True)[:MAX_QUEUES], 1)
    hint = f"did you mean {close[0]}?" if close else "see tasks queues"
    raise BadInput(f"there is no queue {name!r}; {hint}")


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
    found = [named(name) for name in options["names"]] or list(rows.order_by("name")[:MAX_QUEUES])
    add_figures(found, using)
    data = []
    for queue in found:
        holds = {"publish": queue.publishing_paused, "claim": queue.claiming_paused}
        paused = [name for name, is_paused in holds.items() if is_paused]
        data.append({
            "queue": queue.name, "kind": queue.kind, **asdict(queue.figures), "workers": queue.live_workers(),
            "paused": paused, "pause": queue.pause_description if paused else "",
        })  # fmt: skip
    return Answer(data, table(HEADS, map(_queue_row, data)) if data else ["There are no queues."])


def _queue_row(told: dict[str, Any]) -> list[str]:
    paused = f"{' and '.join(told['paused'])}: {told['pause']}" if told["paused"] else "-"
    oldest = "-" if told["oldest"] is None else span(told["oldest"])
    counts = [told[name] for name in ("later", "running", "dead")]
    return [told["queue"], told["waiting"], oldest, *counts, str(len(told["workers"])), paused]


def list_dead(options: Options) -> Answer:
    """List dead letters, the latest first within each database."""
    limit = options["limit"]
    if not 0 < limit <= MAX_LETTERS:
        raise BadInput(f"--limit {limit} must be from 1 to {MAX_LETTERS:,}")
    queues = [named(options["queue"])] if options["queue"] else None
    data: list[dict[str, Any]] = []
    for alias in databases_of(queues):
        dead = Task.objects.using(alias).dead_letters().filter(state_ready=False, state_claim=None)
        if queues:
            dead = dead.filter(queue__name=queues[0].name)
        latest = dead.select_related("queue").annotate(read_at=Now()).order_by("-state_next_attempt", "-state_changed")
        letters = list(latest[: limit - len(data)])
        attempts = attempts_of(letters, alias)
        data += [_letter(task, attempts[task.pk]) for task in letters]
    if not data:
        return Answer(data, ["There are no dead letters."])
    more = [f"There may be more; raise --limit {limit}."] * (len(data) == limit)
    rows = [[str(one["task"]), *(one[name] for name in ("queue", "action")), str(one["attempts"]),
             f"{span(one['age'])} ago", one["error"] or "-"] for one in data]  # fmt: skip
    return Answer(data, [*table(LETTER_HEADS, rows), *more])


def _letter(task: Task, attempts: int) -> dict[str, Any]:
    return {
        "task": task.pk, "database": task._state.db, "queue": task.queue.name, "action": task.action, "key": task.key,
        "attempts": attempts,
        "age": seconds_of(task.read_at - task.state_changed), "error": last_error(task),
    }  # fmt: skip


# Actions


def requeue(options: Options) -> Answer:
    """Requeue dead letters and report how many."""
    ids, name = options["ids"], options["queue"]
    if bool(ids) == bool(name):
        raise BadInput("choose dead letters: either their numbers, or --queue NAME; see tasks dead")
    rows = [each.tasks.all() for each in named(name).copies()] if name else rows_of_numbers(ids)
    count, due, actions = 0, [], []
    for part in rows:
        action = Action.of(Task, "requeue", actor(), options["reason"], moves=True)
        with refusing(TaskError, option="--per-minute"), progress("requeued") as action.progress:
            done = part.requeue(per_minute=options["per_minute"], action=action)
        count += done.count
        actions.append(action)
        due += [done.last_due] if done.last_due else []
    requeued = f"{count:,} of {len(ids):,} requeued" if ids else f"{count:,} of queue {name} requeued"
    others = (
        "; only errored tasks that are not part of another task can be requeued" if ids and count < len(ids) else ""
    )
    if name and any(part.dead_letters().exists() for part in rows):
        others = "; there are more: repeat the command after these are done"
    until = f"; the last is due at {moment_text(max(due))}" if due else ""
    last_due = max(due).isoformat() if due else None
    data = {"requeued": count, "named": len(ids), "last_due": last_due, **_actions(actions)}
    return Answer(data, [f"{requeued}{until}{others}.", *_offers(actions, options)])


def cancel(options: Options) -> Answer:
    """Cancel tasks and report how many."""
    ids = options["ids"]
    count, actions = 0, []
    for part in rows_of_numbers(ids):
        actions.append(Action.of(Task, "cancel", actor(), options["reason"], moves=True))
        count += part.cancel(running=options["running"], action=actions[-1])
    others = "; the others are gone, have ended, or are running (--running cancels these)" if count < len(ids) else ""
    data = {"canceled": count, "named": len(ids), **_actions(actions)}
    return Answer(data, [f"{count:,} of {len(ids):,} canceled{others}.", *_offers(actions, options)])


def _actions(actions: list[Action]) -> dict[str, list[int]]:
    """Return the numbers of the actions, one for each database, by which they can be undone."""
    return {"actions": [action.pk for action in actions if action.pk is not None]}


def _offers(actions: list[Action], options: Options) -> list[str]:
    return [line for action in actions for line in offer(action, options)]


def pause(options: Options) -> Answer:
    """Pause a queue and return its pauses."""
    queue = named(options["name"])
    if not (options["publish"] or options["claim"]):
        raise BadInput("choose what to pause: --publish, --claim or both")
    given = {name: options[name] for name in ("publish", "claim", "reason", "seconds")}
    with refusing(TaskError, option="--for"):
        queue.pause(**given, author=actor())
    return Answer(_pauses_of(queue), [f"Queue {queue.name}: {_paused_words(queue)}."])


def resume(options: Options) -> Answer:
    """Resume a queue and return its pauses."""
    queue = named(options["name"])
    queue.resume(author=actor())
    return Answer(_pauses_of(queue), [f"Queue {queue.name} is resumed."])


def _pauses_of(queue: Queue) -> dict[str, Any]:
    until = queue.pause_until.isoformat() if queue.pause_until else None
    return {"queue": queue.name, "publish": queue.publish_paused, "claim": queue.claim_paused, "until": until}


def _paused_words(queue: Queue) -> str:
    what = [words for words, holds in (
        ("new tasks are refused", queue.publish_paused), ("no tasks can be claimed", queue.claim_paused),
    ) if holds]  # fmt: skip
    return f"{' and '.join(what)}, {queue.pause_description}"


# Tasks and databases


def databases_of(queues: Iterable[Any] | None) -> list[str]:
    """Return the databases with tasks of these queues, or of all queues."""
    rows: QuerySet[Queue] = QuerySet(Queue, using=home())
    meant = rows.exclude(databases=[]) if queues is None else [queue for queue in queues if queue.databases]
    spread = {alias for queue in meant for alias in queue.databases if alias in connections}
    at_home = queues is None or any(not queue.databases for queue in queues)
    return in_order(spread | ({home()} if at_home else set()))


def rows_of_numbers(ids: list[int]) -> list[Any]:
    """Return querysets of tasks by their numbers, one for each database."""
    if len(ids) > MAX_NAMED:
        raise BadInput(f"{len(ids):,} are too many; name at most {MAX_NAMED:,} tasks at once")
    by_alias: dict[str, list[int]] = defaultdict(list)
    for pk in ids:
        alias = database_of(pk) if 0 < pk < 1 << 63 else None
        if alias is None:
            raise BadInput(f"{pk} cannot be the number of a task; see tasks dead")
        by_alias[alias].append(pk)
    return [Task.objects.using(alias).filter(pk__in=pks) for alias, pks in by_alias.items()]
