"""The reasons why a task is not moving: its queue's, then the framework's."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db.models import Q, QuerySet

from stator.models import Reason, Report
from tasks.actions.registry import declared, find
from tasks.conf import load_settings
from tasks.failures import NoHandler, last_line
from tasks.queue.eligibility import RULES, comes_before, of_own_queue
from tasks.queue.runs import of_task
from tasks.queue.serving import service_of
from tasks.queue.unserved import TROUBLE, reason_of, some
from tasks.rows.tasks import TaskRow, names_nobody

# The remedy for each reason. Reasons that are not listed keep the framework's remedy.
REMEDIES = {
    "part": "The page of the whole task lists the other parts.",
    "dead_letter": "Find the cause. After you have fixed it, requeue the task.",
    "terminal": "",
    "external": "",
    "shared": "It ends with its parts; check those.",
    "held": "Wait. If that worker is gone, its lease expires by itself; unlock to end it now.",
    "claim_paused": "Ask the person who paused the queue, then resume the queue.",
    **{rule.code: rule.remedy for rule in RULES},
    "exclusive_held": "Wait for that task.",
    "exclusive_behind": "Wait for that task, or cancel it.",
    "no_handler": "Deploy code that has the action. If external programs run it, set actions_elsewhere on the queue.",
    "elsewhere_only": "Claim it from an external program; or add the action to http_actions and publish it again.",
    "only_workers": "Check whether those workers are running.",
}


def explain(task: TaskRow, framework: list[Any]) -> list[Any]:
    """Return all reasons with their remedies, the most decisive first: the queue's, then the framework's."""
    rows: QuerySet[Any] = QuerySet(type(task), using=task._state.db)
    row = rows.filter(pk=task.pk).select_related("queue").first()
    own = [] if row is None else [*_beside(row), *_reasons(row, rows)]
    if row is not None and row.state == "pending" and row.state_claim is None:
        framework = _served(row, rows, framework)
    if any(reason.code == "held" for reason in own):
        # The framework knows the holder only by a token.
        framework = [reason for reason in framework if reason.code != "leased"]
    return [replace(reason, remedy=REMEDIES.get(reason.code, reason.remedy)) for reason in (*own, *framework)]


def _beside(row: TaskRow) -> Iterator[Any]:
    """Yield the reasons that come first: the last error of a dead letter, and the task that a part belongs to."""
    if row.state == "errored":
        said = last_error(row)
        last = f" The last error: {said}" if said else ""
        yield Reason("dead_letter", f"It ended without success and needs an operator.{last}")
    if row.whole_id is not None:
        yield Reason("part", f"It is a part of task {row.whole_id}.", {"whole": row.whole_id})


def last_error(task: TaskRow) -> str:
    """Return the error of the last failed run of the task, or of any of its parts; empty if there is none."""
    own = of_task(task).filter(outcome="failed").exclude(reason="")
    if run := own.order_by("-pk").first():
        return last_line(run.reason)
    reports = Report.objects.using(task._state.db).filter(model_label=task._meta.label_lower, object_pk=str(task.pk))
    report = reports.exclude(error="").first()
    return last_line(f"{report.error}: {report.message}".partition("\n")[0]) if report else ""


def _reasons(row: TaskRow, rows: QuerySet[Any]) -> list[Any]:
    """Return the queue's reasons; none for a task that has ended."""
    if row.state not in ("pending", "shared"):
        return []
    if row.state == "shared":
        return _shared(row, rows)
    if row.state_claim is not None:
        return _held(row)
    return [reason for say in ORDER if (reason := say(row, rows))]


def _shared(row: TaskRow, rows: QuerySet[Any]) -> list[Any]:
    counts = Counter(part.status for part in rows.filter(whole=row.pk))
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return [Reason("shared", f"It is for {row.worker_count} workers: {told}.", dict(counts))]


def _held(row: TaskRow) -> list[Any]:
    run = row.runs.filter(token=row.state_claim).first()
    if run is None:
        return []
    numbers = {"worker": run.worker, "attempt": row.state_attempts}
    return [Reason("held", f"Worker {run.worker} holds it; this is attempt {row.state_attempts}.", numbers)]


def _paused(row: TaskRow, rows: QuerySet[Any]) -> Any:
    queue = row.queue.current()
    if not queue.claiming_paused:
        return None
    numbers = {"author": queue.pause_author, "reason": queue.pause_reason, "until": queue.pause_until}
    return Reason("claim_paused", f"Nothing of queue {queue.name} is claimed: {queue.pause_description}.", numbers)


def _against_rules(row: TaskRow, rows: QuerySet[Any]) -> Any:
    """Return a reason if the task does not meet one of the rules for all workers."""
    for rule in RULES:
        if not rows.filter(rule.condition(load_settings(), None, of_own_queue), pk=row.pk).exists():
            return Reason(rule.code, rule.sentence(row), rule.numbers(row))
    return None


def _exclusive(row: TaskRow, rows: QuerySet[Any]) -> Any:
    if row.exclusive_value is None:
        return None
    same = rows.filter(queue=row.queue, exclusive_value=row.exclusive_value)
    value = f"{row.queue.exclusive_key}={row.exclusive_value}"
    if held := same.filter(state_claim__isnull=False).first():
        numbers = {"task": held.pk, "value": row.exclusive_value}
        return Reason("exclusive_held", f"Task {held.pk} runs, and only one task with {value} runs at a time.", numbers)
    first = (
        same.filter(comes_before(row.priority, row.pk), state="pending", state_ready=True)
        .order_by("priority", "pk")
        .first()
    )
    if first is None:
        return None
    sentence = f"Task {first.pk} comes first, and only one task with {value} runs at a time."
    return Reason("exclusive_behind", sentence, {"task": first.pk, "value": row.exclusive_value})


def _no_handler(row: TaskRow, rows: QuerySet[Any]) -> Any:
    if row.queue.actions_elsewhere or service_of(row.queue).taking:
        # The workers' actions decide, not this code's: see :mod:`tasks.queue.unserved`.
        return None
    try:
        find(row.action, row.queue.name, row.data)
    except NoHandler:
        sentence = f"No handler: this code has no action {row.action!r} for queue {row.queue.name}."
        return Reason("no_handler", sentence, {"action": row.action})
    return None


def _elsewhere(row: TaskRow, rows: QuerySet[Any]) -> Any:
    """Return a reason if the action is here, but the task is for external programs only."""
    if not row.elsewhere_only or declared(row.action, row.queue.name) is None:
        return None
    sentence = f"Only external programs run it: queue {row.queue.name} did not list {row.action!r} in http_actions."
    return Reason("elsewhere_only", sentence, {"action": row.action})


def _named(row: TaskRow) -> Any:
    if not row.worker_ids:
        return None
    sentence = f"Only these workers may claim it: {some(row.worker_ids)}."
    return Reason("only_workers", sentence, {"workers": row.worker_ids})


def _served(row: TaskRow, rows: QuerySet[Any], framework: list[Any]) -> list[Any]:
    """Return the framework's reasons, with what is known of the task's workers in place of ``no_worker``."""
    found = reason_of(row, rows)
    at = next((place for place, reason in enumerate(framework) if reason.code in IN_LINE), len(framework))
    before, after = framework[:at], framework[at:]
    if found is not None:
        after = [
            reason for reason in after if reason.code not in (IN_LINE if found.code in TROUBLE else ("no_worker",))
        ]
    after = [_in_line(row, rows, reason) if reason.code == "in_line" else reason for reason in after]
    return [*before, *filter(None, (found, _named(row))), *after]


def _in_line(row: TaskRow, rows: QuerySet[Any], reason: Any) -> Any:
    """Return a task's place in the line of its queue, instead of its place among the tasks of all queues."""
    nobody = int(not row.worker_ids)
    same = Q(nobody__lt=nobody) | Q(nobody=nobody, pk__lt=row.pk)
    line = rows.filter(queue=row.queue_id, state="pending", state_ready=True, state_claim=None)
    sooner = line.alias(nobody=names_nobody()).filter(Q(priority__lt=row.priority) | Q(same, priority=row.priority))
    ahead, of = sooner.order_by().values("pk")[: MAX_AHEAD + 1].count(), f"queue {row.queue.name}"
    if ahead > MAX_AHEAD:
        return replace(
            reason, sentence=f"Ready, with more than {MAX_AHEAD:,} tasks of {of} before it.",
            numbers={"more_than": MAX_AHEAD},
        )  # fmt: skip
    told = f"with {ahead:,} {'task' if ahead == 1 else 'tasks'} of {of} before it" if ahead else f"next in line of {of}"
    others = max(0, reason.numbers.get("ahead", MAX_AHEAD) - ahead)
    # Named workers claim from one queue; processes take the most urgent task of all queues that they serve.
    more = f", but {others:,} of other queues are more urgent" if others else ""
    return replace(reason, sentence=f"Ready, {told}{more}.", numbers={"ahead": ahead, "others": others})


# The most tasks that are counted ahead of one; the framework counts up to the same number.
MAX_AHEAD = 1000

# The reasons of an object that a worker will claim in its turn; without a worker they do not apply.
IN_LINE = ("no_worker", "crashed", "at_limit", "in_line", "due")

ORDER = (_paused, _against_rules, _exclusive, _no_handler, _elsewhere)
