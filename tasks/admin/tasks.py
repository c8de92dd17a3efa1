"""Admin of tasks: list them, explain why they do not move, publish and operate them. Tasks are never edited."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode

from stator.admin.confirmation import admin_url, ask, given, log
from stator.admin.detail import offered
from stator.admin.filters import ConditionFilter, ErrorFilter, among
from stator.admin.managed import ERROR, ManagedList
from stator.admin.read_only import SEARCHED
from stator.admin.row_summary import is_failing
from stator.graph.durations import span
from stator.texts import listed
from tasks.admin import actions
from tasks.admin.newest import OperatedAdmin, number_in
from tasks.admin.publishing import PublishForm
from tasks.admin.summaries import SummarizedTask, summarize
from tasks.admin.timeline import MAX_SHOWN, as_text, timeline
from tasks.extensions.backend.priorities import shown_priority
from tasks.models import Queue, Task
from tasks.querysets import STATUSES
from tasks.queue.latest_errors import errors_of
from tasks.rows.tasks import TERMINAL

FIELDS = (
    ("queue", "action", "key"),
    ("shown_priority", "created"),
    ("lease", "timeout", "max_attempts"),
    (
        "heartbeat_interval", "max_unexpected_retries",
        "batch",  # tasks.extensions.batches
    ),
    ("retention", "shown_workers", "exclusive_value"),
)  # fmt: skip


class StatusFilter(admin.SimpleListFilter):
    """A filter of tasks by status."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        """Return the six statuses."""
        return [(status, status) for status in STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Task]) -> QuerySet[Task]:
        """Return the tasks with the chosen status."""
        status = self.value()
        if status not in STATUSES:
            return queryset
        tasks = Task.objects.using(queryset.db)
        # One index holds all ended tasks, so no keys are read for them.
        shown = request.method in ("GET", "HEAD") and status not in TERMINAL
        return among(queryset, tasks.with_status(status), tasks.parts_with_status(status), shown=shown)


class TaskList(ManagedList):
    """A page of tasks with their summaries, which are read for all of them together."""

    def enrich(self, rows: list[Any]) -> None:
        """Read the summaries, and the errors of tasks that fail or gave up."""
        super().enrich(rows)
        summarize(rows, self.queryset.db)
        errors = errors_of((task.pk for task in rows if task.state == "errored" or is_failing(task)), self.queryset.db)
        for task in rows:
            task.latest_error = errors.get(task.pk)


class DeadLetterFilter(ErrorFilter):
    """Dead letters with one error."""

    def failing(self, rows: QuerySet[Model]) -> QuerySet[Task]:
        """Return the dead letters."""
        return Task.objects.using(rows.db).dead_letters()


class TaskAdmin(OperatedAdmin):
    """Admin of tasks. Adding a task publishes it. Tasks are not edited: only their queue and workers change them."""

    list_display = (
        "__str__", "queue", "shown_status", "shown_error", "shown_holder", "shown_attempts", "stator_next",
        "shown_since", "key", "shown_priority",
    )  # fmt: skip
    change_list = TaskList
    list_filter = ("queue", StatusFilter)
    search_fields = ("action",)
    search_help_text = (
        f"A task number or an exact key; or part of an action's name, within the newest {SEARCHED:,} tasks."
    )
    actions = actions.ACTIONS
    live_template = "admin/tasks/task/live.html"
    fieldsets = (
        (None, {"fields": FIELDS, "classes": ("task-grid",)}),
        (None, {"fields": ("shown_metadata", "shown_data")}),
    )
    readonly_fields = (
        "shown_priority", "shown_workers", "shown_metadata", "shown_data", "created", "exclusive_value",
        "batch",  # tasks.extensions.batches
    )  # fmt: skip

    class Media:
        css = {"all": ("tasks/admin.css",)}

    # Permissions

    def has_move_permission(self, request: HttpRequest, obj: Task | None = None) -> bool:
        """Return whether the user may move tasks by hand."""
        return request.user.has_perm("tasks.force_task")

    # Lists

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Return the filters: queue, status and the framework's conditions."""
        return [*self.list_filter, ConditionFilter, DeadLetterFilter]

    def offered_in(self, request: HttpRequest) -> list[tuple[str, str, str]]:
        """Return the actions that filters suggest: requeue dead letters, retry failing tasks."""
        if request.GET.get("status") != "errored" and DeadLetterFilter.parameter_name not in request.GET:
            return super().offered_in(request)
        may = actions.task_requeue.__name__ in self.get_actions(request)
        return [("task_requeue", "Requeue\N{HORIZONTAL ELLIPSIS}", "")] if may else []

    def exactly(self, words: str, using: str) -> Q:
        """Return the condition for tasks with this number or key."""
        # The index on keys begins with the queue.
        queues = list(Queue.objects.using(using).values_list("pk", flat=True))
        pks = [*Task.objects.using(using).filter(queue__in=queues, key=words).values_list("pk", flat=True)]
        return Q(pk__in=[*pks, *number_in(words)])

    @admin.display(description="status")
    def shown_status(self, task: SummarizedTask) -> str:
        """Return one of the six statuses, coloured."""
        return format_html('<span class="task-status task-{}">{}</span>', task.shown_status, task.shown_status)

    @admin.display(description="error")
    def shown_error(self, task: Any) -> str:
        """Return the latest error of a task that fails or gave up, with a link to all dead letters that have it."""
        error = task.latest_error
        if not (error and error.fingerprint and task.state == "errored"):
            return error.line if error else ""
        return format_html(ERROR, "", urlencode({DeadLetterFilter.parameter_name: error.fingerprint}), error.line)

    @admin.display(description="attempts")
    def shown_attempts(self, task: SummarizedTask) -> int:
        """Return the number of claims since the task was published or requeued."""
        return task.shown_attempts

    @admin.display(description="held by")
    def shown_holder(self, task: SummarizedTask) -> str:
        """Return the worker that holds the task, and the time left on its lease."""
        return task.shown_holder

    @admin.display(description="published", ordering="-created")
    def shown_since(self, task: Task) -> str:
        """Return how long ago the task was published."""
        return f"{span((timezone.now() - task.created).total_seconds())} ago"

    @admin.display(description="priority", ordering="priority")
    def shown_priority(self, task: Task) -> int:
        """Return the priority, smaller is sooner; for a task of Django's framework Django's own, larger is sooner."""
        shown = task.priority
        shown = shown_priority(task.action, task.priority)  # tasks.extensions.backend
        return shown  # noqa: RET504 - the line above may go

    # Pages of tasks

    @admin.display(description="workers")
    def shown_workers(self, task: Task) -> str:
        """Return which workers may claim the task, and how many are to run it."""
        workers = listed(task.worker_ids, MAX_SHOWN) or "any"
        workers = f"{task.worker_count} of {workers}"  # tasks.extensions.shared
        return workers  # noqa: RET504 - the line above may go

    @admin.display(description="metadata")
    def shown_metadata(self, task: Task) -> str:
        """Return the metadata as JSON."""
        return format_html("<pre>{}</pre>", as_text(task.metadata))

    @admin.display(description="data")
    def shown_data(self, task: Task) -> str:
        """Return the action's data as JSON."""
        return format_html("<pre>{}</pre>", as_text(task.data))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Task | None:
        """Return the task with its summary."""
        task = super().get_object(request, object_id, from_field)
        if task is not None:
            summarize([task], task._state.db)
        return task

    def live_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Return what the page shows: why the task is not moving, its history, its results and the possible actions."""
        context = super().live_context(request, obj)
        parts: list[Task] = []
        parts += obj.parts.order_by("pk")[: MAX_SHOWN + 1]  # tasks.extensions.shared
        summarize(parts[:MAX_SHOWN], obj._state.db)
        results = [part.result for part in parts if part.state == "completed"] if parts else obj.results
        events = timeline(obj, context["stator_timeline"])
        hidden = ("Attempts here", "Held by")
        facts = [fact for fact in context["stator_facts"] if fact[0] not in hidden]
        return context | {
            "stator_state": obj.shown_status,
            "stator_facts": [("Attempts", obj.shown_attempts), ("Held by", obj.shown_holder), *facts],
            "stator_timeline": events,
            "stator_acts": [*offered(self, request, obj, actions.useful_acts(obj)), *context["stator_acts"]],
            "task_results": [as_text(result) for result in results[:MAX_SHOWN]],
            "task_parts": parts[:MAX_SHOWN],
            "task_more": len(parts) > MAX_SHOWN,
        }

    # Publishing

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, object] | None = None
    ) -> HttpResponse:
        """Show the form for a task, and publish it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = PublishForm(given(request), initial={"queue": request.GET.get("queue")})
        if not form.is_valid():
            words = ["Empty values come from the queue, or else from the settings."]
            return ask(self, request, form, title="Publish a task", button="Publish", words=words, is_action=False)
        task, outcome = form.published.task, str(form.published.outcome)
        flag = ADDITION if outcome == "inserted" else CHANGE
        log(self, request, [task], f"Published: {outcome}.", flag)
        self.message_user(request, form.sentence, messages.SUCCESS if outcome == "inserted" else messages.WARNING)
        if not self.has_view_permission(request):
            return HttpResponseRedirect(admin_url(self, "add"))
        return HttpResponseRedirect(admin_url(self, "change", task.pk))
