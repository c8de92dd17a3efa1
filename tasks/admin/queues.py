"""Admin of queues: their depth, their rules and their pauses."""

from typing import Any, Protocol

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from stator.admin.actions import PauseObjectsForm
from stator.admin.confirmation import ActionFunction, ask, back, given, log, tell
from stator.admin.detail import offered
from stator.admin.fields import OF_JSON
from stator.admin.listing import AnyAddressAdmin, BoundedChangeList
from stator.admin.row_summary import progress, seconds_since
from stator.graph.durations import span
from stator.survey.flow import HOUR, PERIODS
from tasks.admin.queue_flow import dead_by_error, flow_of
from tasks.admin.summaries import summarize
from tasks.conf import TaskSettings
from tasks.models import Queue, Task
from tasks.queue.figures import Figures, add_figures
from tasks.queue.rules import NAME, RULES
from tasks.queue.serving import service_of
from tasks.rows.claimants import CLAIMANT_ALIVE
from tasks.rows.clock import Later

NONE = "\N{EM DASH}"
MAX_WORKERS = 100
# Running tasks that its page names.
MAX_RUNNING = 20
FIXED = ("name", "kind", "exclusive_key", "spread")
FIGURES = ("pauses", "waiting", "oldest", "done", "running", "dead", "later")
HELP = {
    "name": "Programs use the queue by this name. It cannot be changed later.",
    "kind": "Exclusive: at most one task runs at a time for each value of the key below. It cannot be changed later.",
    "exclusive_key": "A name in the metadata of each task. For exclusive queues only; it cannot be changed later.",
    "spread": "Whether its tasks are in all parts of a table of tasks that is divided. It cannot be changed later.",
    **{
        name: f"{rule.says}{' Empty: as in the settings.' * hasattr(TaskSettings, name.upper())}"
        for name, rule in RULES.items()
    },
}


class QueueForm(forms.ModelForm):
    """A queue and its rules. A refusal by the queue is a form error."""

    class Meta:
        model = Queue
        fields = (*FIXED, *RULES)
        help_texts = HELP

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "name" in self.fields:
            self.fields["name"].validators.append(NAME)


class PauseQueuesForm(PauseObjectsForm):
    """What to pause, why, and for how long."""

    publish = forms.BooleanField(required=False, label="Publishing", help_text="New tasks are refused.")
    claim = forms.BooleanField(
        required=False, label="Claiming", help_text="No tasks are handed out to workers. Running tasks may finish."
    )
    reason = forms.CharField(max_length=200, required=False, widget=forms.TextInput(attrs={"size": 60}))
    field_order = ("publish", "claim", "reason", "seconds")

    def clean(self) -> dict[str, object]:
        """Require publishing, claiming or both."""
        super().clean()
        values = self.cleaned_data
        if not (values.get("publish") or values.get("claim")):
            raise forms.ValidationError("Choose publishing, claiming or both.")
        return values


@admin.action(description="Pause\N{HORIZONTAL ELLIPSIS}", permissions=["change"])
def queue_pause(model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Queue]) -> HttpResponse | None:
    """Ask what to pause, why and for how long; then pause."""
    form = PauseQueuesForm(given(request))
    queues = list(queryset.order_by("name"))
    if not form.is_valid():
        rows = [f"{queue}{f': {queue.pause_line}; the new pause replaces it' if queue.pause_line else ''}"
                for queue in queues]  # fmt: skip
        return ask(model_admin, request, form, title="Pause queues", button="Pause", rows=rows)
    values = form.cleaned_data
    length = f" for {span(values['seconds'])}" if values["seconds"] else ""
    what = " and ".join(word for word, field in (("publishing", "publish"), ("claiming", "claim")) if values[field])
    for queue in queues:
        queue.pause(**values, author=request.user.get_username())
        log(model_admin, request, [queue], f"Paused {what}{length}. {values['reason']}".strip())
    otherwise = f"{what.capitalize()} {'are' if ' ' in what else 'is'} paused."
    tell(model_admin, request, len(queues), "paused", otherwise)
    return back(model_admin, request)


@admin.action(description="Resume", permissions=["change"])
def queue_resume(model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Queue]) -> HttpResponse | None:
    """End both pauses."""
    paused = [queue for queue in queryset.order_by("name") if queue.what_is_paused]
    for queue in paused:
        was = queue.pause_line
        queue.resume(author=request.user.get_username())
        log(model_admin, request, [queue], f"Resumed. It was {was}.")
    tell(model_admin, request, len(paused), "resumed", "" if paused else "None of them is paused.")
    return back(model_admin, request)


ACTIONS: tuple[ActionFunction, ...] = (queue_pause, queue_resume)


class QueueWithFigures(Protocol):
    """A queue whose figures have been read."""

    pk: int
    figures: Figures


class QueueList(BoundedChangeList):
    """A page of queues with their figures, which are read for all of them together."""

    def enrich(self, rows: list[Any]) -> None:
        """Read the figures."""
        add_figures(rows, self.queryset.db)


class QueueAdmin(AnyAddressAdmin):
    """Admin of queues. A queue's name, kind and exclusive key cannot be changed after it is created."""

    form = QueueForm
    formfield_overrides = OF_JSON
    change_list = QueueList
    list_display = ("name", *FIGURES, "kind")
    list_filter = ("kind",)
    list_per_page = 50
    search_fields = ("name",)
    ordering = ("name",)
    actions = ACTIONS
    change_form_template = "admin/tasks/queue/change_form.html"

    class Media:
        css = {"all": ("stator/admin.css", "stator/overview.css", "tasks/admin.css")}

    def has_delete_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        """Allow deletion only of an empty queue, from its own page: deleting several would read every task first."""
        return obj is not None and super().has_delete_permission(request, obj) and not obj.tasks.exists()

    # Figures

    @admin.display(description="waiting")
    def waiting(self, queue: QueueWithFigures) -> str:
        """Return how many tasks may be claimed now."""
        return _link(queue, queue.figures.waiting, "pending")

    @admin.display(description="oldest waits")
    def oldest(self, queue: QueueWithFigures) -> str:
        """Return how long the first waiting task has waited."""
        return NONE if queue.figures.oldest is None else span(queue.figures.oldest)

    @admin.display(description="done")
    def done(self, queue: QueueWithFigures) -> str:
        """Return when the waiting tasks are done, at the pace of the last minutes."""
        return queue.figures.done or NONE

    @admin.display(description="due later")
    def later(self, queue: QueueWithFigures) -> str:
        """Return how many tasks are not due yet."""
        return _link(queue, queue.figures.later, "invisible")

    @admin.display(description="running")
    def running(self, queue: QueueWithFigures) -> str:
        """Return how many tasks workers hold."""
        return _link(queue, queue.figures.running, "running")

    @admin.display(description="dead letters")
    def dead(self, queue: QueueWithFigures) -> str:
        """Return how many tasks are dead letters."""
        return format_html('<span class="queue-dead">{}</span>', _link(queue, queue.figures.dead, "errored"))

    @admin.display(description="paused")
    def pauses(self, queue: Queue) -> str:
        """Return what is paused, who paused it, until when and why."""
        return format_html('<span class="queue-paused">{}</span>', queue.pause_line) if queue.pause_line else NONE

    # Pages of queues

    def get_readonly_fields(self, request: HttpRequest, obj: Queue | None = None) -> tuple[str, ...]:
        """Return the fields that are fixed at creation, and the figures."""
        return (*FIXED, *FIGURES, "created") if obj is not None else ()

    def get_fieldsets(self, request: HttpRequest, obj: Queue | None = None) -> Any:
        """Show the queue's figures first, then its rules."""
        rules = (None if obj is None else "Rules", {"fields": (*FIXED, *RULES)})
        shown = ("waiting", "oldest", "done"), ("later", "running", "dead"), "pauses"
        now = {"fields": shown, "classes": ("task-grid",)}
        return [rules] if obj is None else [("Now", now), rules]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """Return the queue with its figures."""
        queue = super().get_object(request, object_id, from_field)
        if queue is not None:
            add_figures([queue], queue._state.db)
        return queue

    def shown_of(self, request: HttpRequest, obj: Queue) -> dict[str, Any]:
        """Return the live workers of the queue, its charts and errors, and the actions that are possible."""
        period = next((one for one in PERIODS if one == request.GET.get("period")), HOUR)
        acts = [queue_pause, *([queue_resume] if obj.what_is_paused else [])]
        live = obj.claimants.filter(seen__gt=Later(-CLAIMANT_ALIVE)).order_by("worker")[: MAX_WORKERS + 1]
        return {
            "queue_flow": flow_of(obj, period),
            "queue_periods": PERIODS,
            "queue_dead": dead_by_error(obj) if request.user.has_perm("tasks.view_task") else [],
            "queue_may_requeue": request.user.has_perm("tasks.change_task"),
            "queue_processes": [process.name for process in service_of(obj).taking[:MAX_WORKERS]],
            "queue_running": _running(obj) if request.user.has_perm("tasks.view_task") else [],
            "queue_workers": live[:MAX_WORKERS],
            "queue_more": len(live) > MAX_WORKERS,
            "queue_acts": offered(self, request, obj, acts),
            "queue_may_publish": request.user.has_perm("tasks.add_task"),
        }

    def save_model(self, request: HttpRequest, obj: Queue, form: forms.ModelForm, change: bool) -> None:
        """Write only the rules that were changed: the pauses may have changed meanwhile."""
        if change:
            obj.save(update_fields=form.changed_data)
        else:
            super().save_model(request, obj, form, change)


def _running(queue: Queue) -> list[Any]:
    """Return the tasks of a queue that have run longest, with their holders and progress. Index ``st_lease``."""
    using = str(queue._state.db)
    held: QuerySet[Any] = QuerySet(Task, using=using).filter(queue=queue.pk, state_claim__isnull=False)
    tasks = list(held.order_by("state_attempted")[:MAX_RUNNING])
    summarize(tasks, using)
    said = progress(tasks)
    for task in tasks:
        task.shown_progress = said.get(task.pk)
        task.shown_for = span(seconds_since(task.state_attempted)) if task.state_attempted else NONE
    return tasks


def _link(queue: QueueWithFigures, figure: str, status: str) -> str:
    """Return a figure that links to the tasks it counts."""
    if figure == "0":
        return figure
    query = urlencode({"queue__id__exact": str(queue.pk), "status": status})
    return format_html('<a href="{}?{}">{}</a>', reverse("admin:tasks_task_changelist"), query, figure)
