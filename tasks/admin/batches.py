"""Admin of batches: how far they are, and cancel and requeue of what failed. Batches are never edited."""

from collections.abc import Callable
from typing import Protocol

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from stator.admin.confirmation import ActionFunction, ask, back, given, log, tell
from stator.admin.detail import offered
from stator.admin.managed import ManagedList
from stator.admin.read_only import SEARCHED
from stator.models import are_apart
from stator.texts import COUNTED, count_text
from tasks.admin.actions import CancelForm, RequeueForm
from tasks.admin.newest import OperatedAdmin, number_in
from tasks.exceptions import TaskError
from tasks.extensions.batches.models import UNENDED_TASKS
from tasks.models import Batch, Task
from tasks.queue.expressions import CountOf, for_each
from tasks.queue.figures import by_column


@admin.action(description="Cancel\N{HORIZONTAL ELLIPSIS}", permissions=["retry"])
def batch_cancel(model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Batch]) -> HttpResponse | None:
    """Ask for a reason and whether running tasks are included; then cancel the batches and their tasks."""
    form = CancelForm(given(request))
    if not form.is_valid():
        words = ["The batches are canceled with their waiting tasks, and publish nothing."]
        return ask(model_admin, request, form, title="Cancel batches", button="Cancel", words=words, rows=queryset)
    return _each(model_admin, request, queryset, "canceled", Batch.cancel, form.cleaned_data)


@admin.action(description="Requeue what failed\N{HORIZONTAL ELLIPSIS}", permissions=["retry"])
def batch_requeue(
    model_admin: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Batch]
) -> HttpResponse | None:
    """Ask for a reason and a rate; then requeue the dead letters of the batches."""
    form = RequeueForm(given(request))
    if not form.is_valid():
        words = ["Their dead letters get all their attempts again, and failed batches run again."]
        return ask(
            model_admin, request, form, title="Requeue what failed", button="Requeue", words=words, rows=queryset
        )
    return _each(model_admin, request, queryset, "requeued", Batch.requeue, form.cleaned_data, _left_of)


ACTIONS: tuple[ActionFunction, ...] = (batch_cancel, batch_requeue)

# The most batches of one action; the others can be chosen again.
AT_ONCE = 100


def _each(
    model_admin: admin.ModelAdmin,
    request: HttpRequest,
    batches: QuerySet[Batch],
    done: str,
    act: Callable[..., object],
    given: dict[str, object],
    left_of: Callable[[Batch], str] = lambda batch: "",
) -> HttpResponse | None:
    count, more = 0, max(0, batches.order_by().count() - AT_ONCE)
    refused = left = ""
    for batch in batches.order_by("pk")[:AT_ONCE]:
        log(model_admin, request, [batch], f"{done.capitalize()}. {given['reason']}".strip())
        try:
            act(batch, actor=request.user.get_username(), **given)
            left = left_of(batch) or left
            count += 1
        except TaskError as error:
            refused = f"Not changed: {error}."
    many = f"{more:,} more are left: at most {AT_ONCE} are changed at once; choose them again." if more else ""
    tell(model_admin, request, count, done, " ".join(filter(None, (refused, left, many))))
    return back(model_admin, request)


def _left_of(batch: Batch) -> str:
    """Return what a requeue has left, as one call requeues 10,000 dead letters at most."""
    left = Task.objects.using(batch._state.db).filter(batch=batch).dead_letters().exists()
    return f"{batch} has dead letters left: repeat the action after these are done." if left else ""


class BatchList(ManagedList):
    """A page of batches with the number of tasks that they wait for, which is read for all of them together."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the rows, then the numbers."""
        super().get_results(request)
        left = _left(QuerySet(Batch, using=self.queryset.db), [row.pk for row in self.result_list])
        for row in self.result_list:
            row.shown_left = left.get(row.pk, "0")


def _left(batches: QuerySet[Model], pks: list[int]) -> dict[int, str]:
    """Return by batch how many tasks have not ended."""

    def unended(tasks: QuerySet[Task]) -> QuerySet[Task]:
        return tasks.filter(state__in=UNENDED_TASKS)

    if are_apart(Task, batches.db):
        # Batches are on the coordinator alone, where no query of the nodes can refer to them.
        counts, cut = by_column(unended(QuerySet(Task, using=batches.db)).filter(batch__in=pks), "batch")
        return {pk: count_text(counts[pk], cut) for pk in pks}
    asked = for_each(batches, pks, lambda mine: [CountOf(unended(mine).values("pk")[: COUNTED + 1])], relation="batch")
    return {pk: count_text(count) for pk, count in asked}


class ListedBatch(Protocol):
    """A batch in the list."""

    shown_left: str


@admin.register(Batch)
class BatchAdmin(OperatedAdmin):
    """Admin of batches."""

    list_display = ("__str__", "queue", "stator_state", "left", "stator_age", "created")
    change_list = BatchList
    list_filter = ("queue", "state")
    search_fields = ("key",)
    search_help_text = f"A number or an exact key; or part of a key, within the newest {SEARCHED:,} batches."
    actions = ACTIONS
    fields = ("queue", "key", "on_done", "on_failed", "on_first_failure", "created")
    readonly_fields = fields

    # Programs publish batches, and tasks move them.
    has_add_permission = has_move_permission = OperatedAdmin.has_change_permission

    def exactly(self, words: str, using: str) -> Q:
        """Return the condition for batches with this number or key."""
        return Q(pk__in=number_in(words)) | Q(key=words)

    @admin.display(description="tasks left")
    def left(self, batch: ListedBatch) -> str:
        """Return how many tasks have not ended."""
        return str(batch.shown_left)

    def live_context(self, request: HttpRequest, obj: Batch) -> dict[str, object]:
        """Return what the page shows: how far the batch is, its tasks by status, and the possible actions."""
        context, counts = super().live_context(request, obj), obj.counts()
        address = reverse("admin:tasks_task_changelist", current_app=self.admin_site.name)
        link = format_html('<a href="{}?batch__id__exact={}">{}</a>', address, obj.pk, f"{counts.pop('total'):,}")
        facts = [("Tasks", link), *((name.capitalize(), f"{count:,}") for name, count in counts.items())]
        useful = [batch_cancel] if not obj.state_graph.states[obj.state].terminal else []
        useful += [batch_requeue] if useful and counts["errored"] else []
        return context | {
            "stator_progress": obj.progress,
            "stator_facts": facts,
            "stator_acts": [*offered(self, request, obj, useful), *context["stator_acts"]],
        }
