"""Tasks in the admin: what is there and why it does not move; published and operated, never edited."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html

from stator.admin import StatorAdmin
from stator.admin.acts import refuse_forbidden
from stator.admin.conditions import ConditionFilter, few_keys, found_once
from stator.admin.kept import SEARCHED, newest
from stator.admin.listing import BoundedChangeList, is_large
from stator.admin.page import offered
from stator.durations import span
from tasks.admin import acts
from tasks.admin.asking import admin_url, ask, given
from tasks.admin.publishing import PublishForm
from tasks.admin.summaries import summarize
from tasks.admin.timeline import MOST, as_text, timeline
from tasks.models import Queue, Task
from tasks.priorities import shown_priority
from tasks.querysets import STATUSES, TERMINAL

FIELDS = (
    ("queue", "action", "key"),
    ("shown_priority", "created"),
    ("lease", "timeout", "max_attempts"),
    ("retention", "shown_workers", "exclusive_value"),
)

# Reasons for which nothing goes on by itself.
TROUBLE = {"dead_letter", "no_handler", "no_eligible_worker"}


class StatusFilter(admin.SimpleListFilter):
    """Tasks by what they are to those who use queues."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The six statuses."""
        return [(status, status) for status in STATUSES]

    def queryset(self, request: HttpRequest, queryset: Any) -> QuerySet[Any]:
        """The tasks of the chosen one."""
        status = self.value()
        if status not in STATUSES:
            return queryset
        # An act is done to those that have it at that time; those that have ended an index has together.
        if request.method in ("GET", "HEAD") and status not in TERMINAL:
            keys = few_keys(Task.objects.using(queryset.db).parts_with_status(str(status)))
            if keys is not None:
                return queryset.filter(pk__in=keys)
        found: QuerySet[Any] = queryset.filter(pk__in=Task.objects.using(queryset.db).with_status(status))
        return found


class TaskList(BoundedChangeList):
    """A page of tasks, each with what is asked for all of them at once."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows, and their summaries."""
        super().get_results(request)
        summarize(self.result_list, self.queryset.db)


class TaskAdmin(StatorAdmin):
    """Adding a task publishes it. One that is there is not edited: its life is that of its queue and its workers."""

    list_display = (
        "__str__", "queue", "shown_status", "shown_holder", "shown_attempts", "stator_next", "shown_since", "key",
        "shown_priority",
    )  # fmt: skip
    list_filter = ("queue", StatusFilter)
    list_select_related = ("queue",)
    search_fields = ("action",)
    search_help_text = (
        f"The number of a task, a whole key, or in the newest {SEARCHED:,} tasks a part of the name of an action."
    )
    ordering = ("-pk",)
    actions = acts.ACTS
    live_template = "admin/tasks/task/live.html"
    fieldsets = (
        (None, {"fields": FIELDS, "classes": ("task-grid",)}),
        (None, {"fields": ("shown_metadata", "shown_data")}),
    )
    readonly_fields = ("shown_priority", "shown_workers", "shown_metadata", "shown_data", "created", "exclusive_value")

    class Media:
        css = {"all": ("tasks/admin.css",)}

    # Permissions

    # Not by the object, although what is below stands in the place of Django's own.
    differs_by_object = False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody edits a task; who has the permission may operate it."""
        return False

    def has_retry_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may retry, unlock, cancel and requeue."""
        return request.user.has_perm("tasks.change_task")

    def has_move_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may move tasks by hand."""
        return request.user.has_perm("tasks.force_task")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Workers delete tasks that ended long enough ago; before that they are canceled."""
        return False

    # Lists

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The page of tasks."""
        return TaskList

    def get_list_display(self, request: HttpRequest) -> Any:
        """The columns of a queue alone; those of the framework are on the page of each task."""
        return self.list_display

    def get_list_filter(self, request: HttpRequest) -> Any:
        """By queue and status, and by what an operator looks for."""
        return [*self.list_filter, ConditionFilter]

    def get_sortable_by(self, request: HttpRequest) -> Any:
        """Any column where there are few tasks, for none of them has an index for it."""
        return () if is_large(self.get_queryset(request)) else super().get_sortable_by(request)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """The task of that number or key, and the newest whose action reads so."""
        words = search_term.strip()
        if not words:
            return queryset, False
        tasks = Task.objects.using(queryset.db)
        # By queue, as the index of keys is.
        keyed = tasks.filter(queue__in=list(Queue.objects.using(queryset.db).values_list("pk", flat=True)), key=words)
        found = [*keyed.values_list("pk", flat=True)]
        found += [int(words)] if words.isascii() and words.isdecimal() and len(words) < 19 else []
        matching, _ = super().get_search_results(request, newest(tasks.all(), "pk"), search_term)
        return queryset.filter(Q(pk__in=found) | Q(pk__in=found_once(matching))), False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list, or an act on tasks of it."""
        if request.method == "POST":
            refuse_forbidden(self, request, acts.ACTS)
        return super().changelist_view(request, extra_context)

    @admin.display(description="status")
    def shown_status(self, task: Any) -> str:
        """One of the six, in its colour."""
        return format_html('<span class="task-status task-{}">{}</span>', task.told_status, task.told_status)

    @admin.display(description="attempts")
    def shown_attempts(self, task: Any) -> int:
        """Claims since it was published or requeued."""
        return int(task.told_attempts)

    @admin.display(description="held by")
    def shown_holder(self, task: Any) -> str:
        """The worker that has it, and for how much longer."""
        return str(task.told_holder)

    @admin.display(description="published", ordering="-created")
    def shown_since(self, task: Any) -> str:
        """How long ago it was published."""
        return f"{span((timezone.now() - task.created).total_seconds())} ago"

    @admin.display(description="priority", ordering="priority")
    def shown_priority(self, task: Any) -> int:
        """Smaller is sooner; of a task of Django's framework its own, of which larger is sooner."""
        return shown_priority(task.action, task.priority)

    # Pages of tasks

    @admin.display(description="workers")
    def shown_workers(self, task: Any) -> str:
        """Who may claim it, and how many are to run it."""
        names = ", ".join(task.worker_ids[:MOST]) + (", ..." if len(task.worker_ids) > MOST else "")
        return f"{task.worker_count} of {names or 'any'}"

    @admin.display(description="metadata")
    def shown_metadata(self, task: Any) -> str:
        """The pairs, as JSON."""
        return format_html("<pre>{}</pre>", as_text(task.metadata))

    @admin.display(description="data")
    def shown_data(self, task: Any) -> str:
        """What the action gets, as JSON."""
        return format_html("<pre>{}</pre>", as_text(task.data))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The task with its summary."""
        task = super().get_object(request, object_id, from_field)
        if task is not None:
            summarize([task], task._state.db)
        return task

    def live_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Why it is not moving, what happened to it, what came of it, and what may be done; in the words of queues."""
        context = super().live_context(request, obj)
        parts = list(obj.parts.order_by("pk")[: MOST + 1])
        summarize(parts[:MOST], obj._state.db)
        results = obj.results if obj.worker_count == 1 else [part.result for part in parts if part.state == "completed"]
        events = timeline(obj, context["stator_timeline"])
        hidden = ("Attempts here", "Held by")
        facts = [fact for fact in context["stator_facts"] if fact[0] not in hidden]
        return context | {
            "stator_state": obj.told_status,
            "stator_trouble": context["stator_trouble"] or any(r.code in TROUBLE for r in context["stator_reasons"]),
            "stator_facts": [("Attempts", obj.told_attempts), ("Held by", obj.told_holder), *facts],
            "stator_timeline": events,
            "stator_acts": [*offered(self, request, obj, acts.useful_acts(obj)), *context["stator_acts"]],
            "task_results": [as_text(result) for result in results[:MOST]],
            "task_parts": parts[:MOST],
            "task_more": len(parts) > MOST,
        }

    # Publishing

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Ask for a task, and publish it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = PublishForm(given(request), initial={"queue": request.GET.get("queue")})
        if not form.is_valid():
            words = ["What is left empty is as the queue has it, or else the setting of the project."]
            return ask(self, request, form, title="Publish a task", does="Publish", words=words)
        task, outcome = form.published.task, str(form.published.outcome)
        flag = ADDITION if outcome == "inserted" else CHANGE
        LogEntry.objects.log_actions(request.user.pk, [task], flag, f"Published: {outcome}.")  # type: ignore[arg-type]
        self.message_user(request, form.told, messages.SUCCESS if outcome == "inserted" else messages.WARNING)
        if task._state.db != Task.objects.db:
            # Of a queue that is spread over several databases; the lists here have those of one.
            return HttpResponseRedirect(admin_url(self, "changelist"))
        if not self.has_view_permission(request):
            return HttpResponseRedirect(admin_url(self, "add"))
        return HttpResponseRedirect(admin_url(self, "change", task.pk))
