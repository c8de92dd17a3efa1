"""The reasons why a task is not moving: its queue's, then the framework's."""

from collections.abc import Iterator
from dataclasses import replace

from django.db.models import Case, Q, When

from stator.models import Reason
from tasks.actions.registry import find
from tasks.conf import load_settings
from tasks.extensions.problems.shared import of_parts
from tasks.extensions.problems.throttles import limited
from tasks.extensions.problems.unserved import UNSERVED, reason_of
from tasks.failures import NoHandler
from tasks.queue.eligibility import RULES, Asking, waiting
from tasks.queue.latest_errors import errors_of
from tasks.queue.parts import parts_of
from tasks.queue.serving import Service, service_of
from tasks.rows.tables import Rows, task_rows
from tasks.rows.tasks import READ_AT, TaskRow, names_nobody

# The most tasks that are counted ahead of one; the framework counts up to the same number.
MAX_AHEAD = 1000

# The reasons of an object that a worker will claim in its turn; without a worker they do not apply.
IN_LINE = ("no_worker", "crashed", "at_limit", "in_line", "due")

# The framework's reasons whose remedy is in a task's own reasons.
REMEDIED = ("terminal", "external")


def explain(task: TaskRow, framework: list[Reason]) -> list[Reason]:
    """Return all reasons with their remedies, the most decisive first: the queue's, then the framework's."""
    framework = [replace(reason, remedy="") if reason.code in REMEDIED else reason for reason in framework]
    rows = task_rows(task._state.db)
    row = rows.filter(pk=task.pk, shard=task.shard).select_related("queue").annotate(**READ_AT).first()
    if row is None:
        return framework
    own = list(_of_state(row, rows))
    if row.state == "pending" and row.state_claim is None:
        service = service_of(row.queue)
        by_rules = [*_against_rules(row, rows), *_no_handler(row, service)]
        own += [reason for reason in by_rules if reason.code != "only_workers"]
        named = [reason for reason in by_rules if reason.code == "only_workers"]
        framework = _served(row, rows, [*reason_of(row, service), *named], framework)
    framework = limited(row, framework)  # tasks.extensions.problems.throttles
    if any(reason.code == "held" for reason in own):
        # The framework knows the holder only by a token.
        framework = [reason for reason in framework if reason.code != "leased"]
    return [*own, *framework]


def _of_state(row: TaskRow, rows: Rows) -> Iterator[Reason]:
    """Yield the reasons of a task that does not wait for a claim, and the task that a part belongs to."""
    if row.state == "errored":
        errors = errors_of([row.pk], rows.db)
        last = f" The last error: {errors[row.pk].line}" if errors else ""
        remedy = "Find the cause. After you have fixed it, requeue the task."
        yield Reason("dead_letter", f"It ended without success and needs an operator.{last}", remedy=remedy)
    yield from of_parts(row, rows)  # tasks.extensions.problems.shared
    if row.state == "pending" and row.state_claim and (run := row.runs.filter(token=row.state_claim).first()):
        yield Reason(
            "held",
            f"Worker {run.worker} holds it; this is attempt {row.state_attempts}.",
            {"worker": run.worker, "attempt": row.state_attempts},
            "Wait. If that worker is gone, its lease expires by itself; unlock to end it now.",
        )


def _against_rules(row: TaskRow, rows: Rows) -> Iterator[Reason]:
    """Yield a reason for each rule that the task does not meet, whichever worker asks."""
    asking = Asking(worker="", rows=rows, settings=load_settings(), before=waiting(rows))
    rules = [rule for rule in RULES if rule.reason]
    broken = [Case(When(rule.condition(asking), then=False), default=True) for rule in rules]
    flags = rows.filter(pk=row.pk, shard=row.shard).values_list(*broken).first() or ()
    for rule, is_broken in zip(rules, flags, strict=False):
        if is_broken and rule.reason and (reason := rule.reason(row, rows)):
            yield Reason(rule.code, *reason)


def _no_handler(row: TaskRow, service: Service) -> Iterator[Reason]:
    if row.queue.actions_elsewhere or service.taking:
        # The workers' actions decide, not this code's: see :mod:`tasks.extensions.problems.unserved`.
        return
    try:
        find(row.action, row.queue.name, row.data)
    except NoHandler:
        sentence = f"No handler: this code has no action {row.action!r} for queue {row.queue.name}."
        remedy = "Deploy code that has the action. If external programs run it, set actions_elsewhere on the queue."
        yield Reason("no_handler", sentence, {"action": row.action}, remedy)


def _served(row: TaskRow, rows: Rows, own: list[Reason], framework: list[Reason]) -> list[Reason]:
    """Return the framework's reasons, with what is known of the task's workers in place of ``no_worker``."""
    at = next((place for place, reason in enumerate(framework) if reason.code in IN_LINE), len(framework))
    before, after = framework[:at], framework[at:]
    codes = {reason.code for reason in own} - {"only_workers"}
    if codes:
        left_out = IN_LINE if codes.intersection(UNSERVED) else ("no_worker",)
        after = [reason for reason in after if reason.code not in left_out]
    after = [_in_line(row, rows, reason) if reason.code == "in_line" else reason for reason in after]
    return [*before, *own, *after]


def _in_line(row: TaskRow, rows: Rows, reason: Reason) -> Reason:
    """Return a task's place in the line of its queue, instead of its place among the tasks of all queues."""
    nobody = int(not row.worker_ids)
    same = Q(nobody__lt=nobody) | Q(nobody=nobody, pk__lt=row.pk)
    line = waiting(rows).filter(queue=row.queue_id, state_claim=None, **parts_of(row.queue))
    sooner = line.alias(nobody=names_nobody()).filter(Q(priority__lt=row.priority) | Q(same, priority=row.priority))
    ahead, of = sooner.order_by().values("pk")[: MAX_AHEAD + 1].count(), f"queue {row.queue.name}"
    if ahead > MAX_AHEAD:
        return replace(
            reason, sentence=f"Ready, with more than {MAX_AHEAD:,} tasks of {of} before it.",
            numbers={"more_than": MAX_AHEAD},
        )  # fmt: skip
    place = (
        f"with {ahead:,} {'task' if ahead == 1 else 'tasks'} of {of} before it" if ahead else f"next in line of {of}"
    )
    others = max(0, reason.numbers.get("ahead", MAX_AHEAD) - ahead)
    # Named workers claim from one queue; processes take the most urgent task of all queues that they serve.
    more = f", but {others:,} of other queues are more urgent" if others else ""
    return replace(reason, sentence=f"Ready, {place}{more}.", numbers={"ahead": ahead, "others": others})
