"""Admin actions on tasks: cancel them, and requeue dead letters. Each is logged under the user's name."""

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict

from stator.admin.actions import ReasonForm, StartOverForm
from stator.admin.confirmation import SHOWN, ActionFunction, ask, back, given, log, tell
from stator.admin.confirmed_snapshot import confirmed_in, describe_changes, see
from stator.admin.listing import COUNTED, AtLeast, bounded_count
from stator.models import moment_text, written_to
from tasks.admin.publishing import clean_names, names_field, plain_field
from tasks.exceptions import TaskError
from tasks.messages import CHANGEABLE
from tasks.models import Task
from tasks.querysets import FASTEST, SLOWEST, TaskQuerySet
from tasks.queue.task_parts import KIND
from tasks.rows.tasks import NO_PART

WAITING = ("invisible", "pending")


class CancelForm(ReasonForm):
    """The reason, and whether running tasks are canceled too."""

    running = forms.BooleanField(
        required=False,
        label="Also running tasks",
        help_text="Their workers learn of it at the next heartbeat. Effects of the attempts so far remain.",
    )


class RequeueForm(StartOverForm):
    """The reason, how many tasks become due per minute, and whether their recorded steps run again."""

    per_minute = forms.FloatField(
        required=False,
        min_value=SLOWEST,
        max_value=FASTEST,
        label="Per minute",
        help_text="Number of tasks that become due per minute, the most urgent first. Empty: all at once.",
    )


@admin.action(description="Cancel\N{HORIZONTAL ELLIPSIS}", permissions=["retry"])
def task_cancel(model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
    """Ask for a reason and whether running tasks are included; then cancel."""
    snapshot = confirmed_in(request, Task)
    form = CancelForm(request.POST if snapshot else None)
    if not (snapshot and form.is_valid()):
        return _ask_cancel(model_admin, request, _tasks(queryset), form)
    changes, tasks = snapshot.changes(model_admin.get_queryset(request)), _tasks(snapshot.unchanged(queryset))
    reason, running = form.cleaned_data["reason"], form.cleaned_data["running"]
    meant = tasks.with_status(*WAITING, *(["running"] if running else []))
    log(model_admin, request, meant, f"Canceled{' (running ones too)' if running else ''}. {reason}".strip())
    count = tasks.cancel(reason, actor=request.user.get_username(), running=running)
    tell(model_admin, request, count, "canceled", _left(tasks, running, changes))
    return back(model_admin, request)


@admin.action(description="Requeue dead letters\N{HORIZONTAL ELLIPSIS}", permissions=["retry"])
def task_requeue(model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
    """Ask for a reason and a rate; then requeue."""
    snapshot = confirmed_in(request, Task)
    form = RequeueForm(request.POST if snapshot else None)
    if not (snapshot and form.is_valid()):
        return _ask_requeue(model_admin, request, _tasks(queryset).dead_letters(), form)
    changes = snapshot.changes(model_admin.get_queryset(request))
    dead = _tasks(snapshot.unchanged(queryset)).dead_letters()
    reason, per_minute = form.cleaned_data["reason"], form.cleaned_data["per_minute"]
    start_over = form.cleaned_data["start_over"]
    pace = f" at {per_minute:g} per minute" if per_minute else ""
    pace += " to start over" * start_over
    log(model_admin, request, dead.in_order(), f"Requeued{pace}. {reason}".strip())
    done = dead.requeue(reason, actor=request.user.get_username(), per_minute=per_minute, start_over=start_over)
    until = f"The last is due at {moment_text(done.last_due)}." if done.last_due else ""
    more = "There are more: repeat the action after these are done." if dead.exists() else ""
    otherwise = f"{until} {more}".strip() if done.count else "Only errored tasks can be requeued."
    tell(model_admin, request, done.count, f"requeued{pace}", f"{otherwise} {_left_alone(changes)}".strip())
    return back(model_admin, request)


class ChangeForm(ReasonForm):
    """The options of one task that can be changed until it ends."""

    worker_ids = names_field("Only these may claim it, one per line. Another holder loses it at the next heartbeat")

    clean_worker_ids = clean_names

    def __init__(self, task: Task, data: QueryDict | None = None) -> None:
        shown = {name: getattr(task, name) for name in CHANGEABLE} | {"worker_ids": "\n".join(task.worker_ids)}
        super().__init__(data, initial=shown)
        self.task = task
        self.fields |= {name: plain_field(name, CHANGEABLE[name]) for name in CHANGEABLE if name not in self.fields}
        for name in CHANGEABLE:
            # An option that is unchanged on the page is not written, even if another person has changed it since.
            self.fields[name].show_hidden_initial = True
        self.order_fields([*CHANGEABLE, "reason"])

    def clean(self) -> dict[str, object]:
        """Change the task if the form has no errors so far."""
        values = super().clean() or {}
        if not self.errors:
            try:
                self.task.change(**{name: values[name] for name in CHANGEABLE if name in self.changed_data})
            except TaskError as refused:
                raise forms.ValidationError(" ".join(str(refused).split())) from refused
        return values


@admin.action(description="Change\N{HORIZONTAL ELLIPSIS}", permissions=["retry"])
def task_change(model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
    """Show the options of one task that can be changed until it ends; then write the changed ones."""
    task = queryset.first()
    if task is None or queryset.count() > 1 or task not in _changeable(queryset):
        tell(model_admin, request, 0, "changed", "Choose one task that has not ended and is no part of another.")
        return back(model_admin, request)
    form = ChangeForm(task, given(request))
    if not form.is_valid():
        words = ["Empty values come from the queue, or else from the settings. What you leave as it is stays."]
        return ask(model_admin, request, form, title=f"Change {task}", button="Change", words=words)
    names = [name for name in CHANGEABLE if name in form.changed_data]
    log(model_admin, request, [task], f"Changed {', '.join(names) or 'nothing'}. {form.cleaned_data['reason']}".strip())
    tell(model_admin, request, int(bool(names)), "changed")
    return back(model_admin, request)


def _changeable(queryset: QuerySet[Task]) -> QuerySet[Task]:
    return queryset.filter(NO_PART, state__in=["pending", "shared"])


ACTIONS: tuple[ActionFunction, ...] = (task_cancel, task_requeue, task_change)


def useful_acts(task: Task) -> list[ActionFunction]:
    """Return the actions that would change this task."""
    if task.status in (*WAITING, "running"):
        return [task_cancel, *([] if KIND.parts.task_of(task) else [task_change])]
    return [task_requeue] if task.state == "errored" and not KIND.parts.task_of(task) else []


def _tasks(queryset: QuerySet[Task]) -> TaskQuerySet:
    """Return the same rows through ``TaskQuerySet``, which has the methods for queues."""
    using = written_to(queryset)
    return Task.objects.using(using).filter(pk__in=queryset.using(using).order_by().values("pk"))


def _ask_cancel(
    model_admin: admin.ModelAdmin, request: HttpRequest, tasks: TaskQuerySet, form: CancelForm
) -> HttpResponse:
    waiting, running = tasks.with_status(*WAITING), tasks.with_status("running")
    held = bounded_count(running)
    if not held:
        del form.fields["running"]
    left = f" {_many(held)} held by workers and will not be canceled, unless you choose so below." if held else ""
    return ask(
        model_admin, request, form, title="Cancel tasks", button="Cancel tasks",
        words=[
            f"{_many(bounded_count(waiting))} waiting and will be canceled.",
            "Tasks that have ended do not change.",
        ],
        warning=left.strip(),
        rows=_named(tasks.with_status(*WAITING, "running")),
        snapshot=see(tasks.with_status(*WAITING, "running"), COUNTED),
    )  # fmt: skip


def _ask_requeue(
    model_admin: admin.ModelAdmin, request: HttpRequest, dead: TaskQuerySet, form: RequeueForm
) -> HttpResponse:
    snapshot = see(dead, COUNTED)
    count = AtLeast(COUNTED) if snapshot.total > COUNTED else snapshot.total
    noun = "dead letter" if count == 1 else "dead letters"
    return ask(
        model_admin, request, form, title="Requeue dead letters", button="Requeue",
        words=[
            f"{count} {noun} will be requeued with all their attempts, for all workers that may claim them.",
            "Tasks that are not errored do not change.",
        ],
        rows=_named(dead), snapshot=snapshot,
    )  # fmt: skip


def _named(tasks: TaskQuerySet) -> list[str]:
    some = tasks.select_related("queue").in_order()[: SHOWN + 1]
    return [f"{task} in {task.queue}{f', key {task.key}' if task.key else ''}{_part_of(task)}" for task in some]


def _part_of(task: Task) -> str:
    whole = KIND.parts.task_of(task)
    return f", a part of task {whole}" if whole else ""


def _many(count: int) -> str:
    return f"{count:,} {'task is' if count == 1 else 'tasks are'}"


def _left(tasks: TaskQuerySet, running: bool, changes: list[str]) -> str:
    held = "" if running or not tasks.with_status("running").exists() else "Running tasks were not canceled."
    return f"{held} {_left_alone(changes)}".strip()


def _left_alone(changes: list[str]) -> str:
    return f"Not changed, {describe_changes(changes)}." if changes else ""
