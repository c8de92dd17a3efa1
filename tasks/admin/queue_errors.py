"""Dead letters of one queue, grouped by their last error, for its page."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from stator.models import Report
from tasks.failures import last_line
from tasks.models import Queue, Run, Task

# Dead letters that are read, the latest first. Dead letters with the same error are requeued together.
READ = 200

# The most dead letters, of all queues, that are searched for one queue's.
MAX_SEARCHED = 10_000


def dead_by_error(queue: Queue) -> list[tuple[str, list[int]]]:
    """Return the keys of a queue's latest dead letters by their last error, most first; three statements."""
    using = str(queue._state.db)
    tasks: QuerySet[Any] = QuerySet(Task, using=using)
    # The framework's index of resting rows lacks the queue, so this reads the latest dead letters of all queues.
    dead = tasks.filter(state="errored", state_ready=False, state_claim=None, whole=None)
    latest = dead.order_by("-state_next_attempt", "-state_changed").values_list("pk", "queue")[:MAX_SEARCHED]
    pks = [pk for pk, of in latest if of == queue.pk][:READ]
    errors = _reported(pks, using) | _reasons(pks, using)
    groups: dict[str, list[int]] = defaultdict(list)
    for pk in pks:
        groups[errors.get(pk, "no error is stored")].append(pk)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _reported(pks: Iterable[int], using: str) -> dict[int, str]:
    """Return the errors of actions that worker processes ran."""
    reports = Report.objects.using(using).filter(model_label=Task._meta.label_lower, object_pk__in=map(str, pks))
    found = reports.exclude(error="").values_list("object_pk", "error", "message")
    return {int(pk): last_line(f"{error}: {message}".partition("\n")[0]) for pk, error, message in found}


def _reasons(pks: Iterable[int], using: str) -> dict[int, str]:
    """Return what named workers gave as the reason of their last failed claims."""
    runs: QuerySet[Any] = QuerySet(Run, using=using)
    failed = runs.filter(task__in=list(pks), outcome="failed").exclude(reason="").order_by("pk")
    return {task: last_line(reason) for task, reason in failed.values_list("task", "reason")}
