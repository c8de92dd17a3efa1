"""Problems of queues: pauses with what waits behind them, and dead letters. Few statements, each with a limit."""

from collections.abc import Iterator
from shlex import quote

from django.db.models import Q, QuerySet

from stator.db.bounded_counts import Tally, by_value, question, tally
from stator.extensions.problems.surveyed import Survey
from stator.graph.durations import span
from stator.models import AdminAction, Now, Problem, are_apart
from stator.rows.readings import read
from stator.texts import count_text
from tasks.extensions.queue_pauses.pausing import pause_lasts
from tasks.models import Queue, Task
from tasks.queue.figures import MAX_COUNTED, QueueFigures, lines
from tasks.queue.task_parts import KIND

# The most queues that are named, and the most paused queues that are read.
SHOWN, MAX_QUEUES = 20, 200


def paused(survey: Survey) -> Iterator[Problem]:
    """Find paused queues."""
    using = survey.using
    (queues,) = with_pause(using)
    paused_queues = list(queues.annotate(read_at=Now()).order_by("name")[: MAX_QUEUES + 1])
    waits = lines([queue.pk for queue in paused_queues[:SHOWN]], using)
    late = (
        read("late ticks", using, otherwise={})
        if any(queue.publishing_paused for queue in paused_queues[:SHOWN])
        else {}
    )
    for queue in paused_queues[:SHOWN]:
        yield _of_pause(queue, waits.get(queue.pk, QueueFigures()), late.get(queue.pk, ""))
    if len(paused_queues) > SHOWN:
        count, more = min(len(paused_queues), MAX_QUEUES) - SHOWN, len(paused_queues) > MAX_QUEUES
        yield Problem(
            "", f"{count_text(count, more)} more queues are paused", where="tasks.Queue", model="tasks.queue",
            count=count, more=more, actions=(AdminAction("List", "tasks.queue"),), command="manage.py tasks queues",
            covers=("pending",),
        )  # fmt: skip


def with_pause(using: str) -> list[QuerySet[Queue]]:
    """Return the paused queues."""
    is_paused = (Q(publish_paused=True) | Q(claim_paused=True)) & pause_lasts()
    return [QuerySet(Queue, using=using).filter(is_paused)]


def unclaimable(survey: Survey) -> Iterator[Problem]:
    """Find queues of worker processes that no worker process claims from: with ``one_per_worker``, over nodes."""
    if not are_apart(Task, survey.using):
        return
    queues: QuerySet[Queue] = QuerySet(Queue, using=survey.using).filter(one_per_worker=True, actions_elsewhere=False)
    for name in queues.order_by("name").values_list("name", flat=True)[:SHOWN]:
        yield Problem(
            "", "on Citus, worker processes claim nothing from a queue with one_per_worker", {"queue": name},
            "clear it, or set actions_elsewhere and start programs that claim by name", where="tasks.Queue",
            model="tasks.queue", detail=name, command=f"manage.py tasks queue set {quote(name)} --no-one-per-worker",
        )  # fmt: skip


def _of_pause(queue: Queue, line: QueueFigures, late: str) -> Problem:
    behind = line.waiting if queue.claiming_paused else 0
    seconds = line.waited if behind else None
    count, more = min(behind, MAX_COUNTED), behind > MAX_COUNTED
    waits = f"; {count_text(count, more)} {'waits' if behind == 1 else 'wait'}" if behind else ""
    waits += f", the first for {span(seconds)}" if seconds is not None else ""
    waits += late and f"; {late}"
    return Problem(
        "", f"{queue.what_is_paused} of a queue is paused{waits}", {"queue": queue.name}, where="tasks.Queue",
        model="tasks.queue", detail=f"{queue.name} {queue.pause_description}", count=behind, more=more, since=seconds,
        actions=(AdminAction("Resume", "tasks.queue", "queue_resume", (queue.pk,)),),
        command=f"manage.py tasks resume {quote(queue.name)}", covers=("pending",) if queue.claiming_paused else (),
    )  # fmt: skip


def dead_letters(survey: Survey) -> Iterator[Problem]:
    """Find queues with dead letters, the queue with most of them first."""
    (resting,) = dead(survey.using)
    asked = question(survey.using, [by_value(resting, "queue")], MAX_COUNTED + 1)
    worst = sorted(tally(survey.using, asked)[0][0], key=lambda one: (-one.count, one.value))
    more = sum(one.count for one in worst) > MAX_COUNTED
    queues: QuerySet[Queue] = QuerySet(Queue, using=survey.using).filter(pk__in=[one.value for one in worst[:SHOWN]])
    named = dict(queues.values_list("pk", "name"))
    for one in worst[:SHOWN]:
        if one.value in named:
            yield _of_dead(named[one.value], one, more)
    if rest := min(MAX_COUNTED, sum(one.count for one in worst[SHOWN:])):
        yield Problem(
            "", f"{count_text(rest, more)} dead letters in further queues", where="tasks.Task", model="tasks.task",
            count=rest, more=more, command="manage.py tasks dead", actions=_list_of(worst[SHOWN:]),
        )  # fmt: skip


def _list_of(queues: list[Tally]) -> tuple[AdminAction, ...]:
    """Return a link to the dead letters of some queues; none if they are too many for an address."""
    if len(queues) > MAX_QUEUES:
        return ()
    query = (("queue__id__in", ",".join(str(one.value) for one in queues)), ("status", "errored"), *KIND.parts.aside)
    return (AdminAction("List", "tasks.task", query=query),)


def dead(using: str) -> list[QuerySet[Task]]:
    """Return the tasks that gave up."""
    return [Task.objects.using(using).dead_letters().order_by()]


def _of_dead(name: str, tally: Tally, more: bool) -> Problem:
    count = min(tally.count, MAX_COUNTED)
    query = (("queue__id__exact", str(tally.value)), ("status", "errored"), *KIND.parts.aside)
    noun, rests = ("task", "rests") if count == 1 and not more else ("tasks", "rest")
    return Problem(
        "", f"{count_text(count, more)} {noun} gave up (dead letters) and {rests} until requeued, the oldest "
        f"{span(tally.oldest)} ago",
        {"queue": name}, "find the cause, then requeue them", where="tasks.Task", model="tasks.task",
        detail=f"in queue {name}", count=count, more=more, since=tally.oldest,
        actions=(AdminAction("Requeue\N{HORIZONTAL ELLIPSIS}", "tasks.task", "task_requeue", query=query),),
        command=f"manage.py tasks requeue --queue {quote(name)}",
    )  # fmt: skip
