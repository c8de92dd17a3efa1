"""Read-only admins for the framework's own tables."""

from itertools import islice
from typing import Any, Protocol

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string

from stator.admin.control_characters import Shown
from stator.admin.links import link_to_object
from stator.admin.listing import AnyAddressAdmin
from stator.graph.durations import seconds_of, span
from stator.models import Action, Worker
from stator.rows.keys import stored_text
from stator.rows.meta import M, home_of, model_of
from stator.rows.news import how_far
from stator.rows.unlocks import held_by

# Models that the list of workers names, at most.
MAX_NAMED = 5
# Objects that the page of a worker names, at most.
MAX_HELD = 50
# A search reads this many of the newest rows.
SEARCHED = 50_000


class KeptAdmin(AnyAddressAdmin[Shown]):
    """A read-only admin. The first column of ``ordering`` sorts the newest rows first, and has an index."""

    search_help_text = f"Exact values, within the newest {SEARCHED:,} rows."

    def unsortable_if_many(self, name: str) -> bool:
        """Return True: not all columns have an index."""
        return True

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Shown], search_term: str
    ) -> tuple[QuerySet[Shown], bool]:
        """Return the matching rows among the newest ones."""
        if search_term:
            first, *_ = self.ordering or ("-pk",)
            queryset = newest(queryset, str(first).removeprefix("-"))
        return super().get_search_results(request, queryset, search_term)

    def _has_no_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: workers write these rows, and delete them when they are old."""
        return False

    has_add_permission = has_change_permission = has_delete_permission = _has_no_permission


def newest(queryset: QuerySet[M], column: str) -> QuerySet[M]:
    """Return the newest rows by an indexed column, and a few more with equal values at the end."""
    rows = queryset.model._base_manager.using(queryset.db).order_by(f"-{column}")
    last = rows.values_list(column, flat=True)[SEARCHED : SEARCHED + 1].first()
    return queryset if last is None else queryset.filter(**{f"{column}__gte": last})


class OfObject(Protocol):
    """A row about an object."""

    model_label: str
    object_pk: str


class OfObjectAdmin(KeptAdmin[Shown]):
    """A read-only admin for rows about single objects."""

    search_help_text = (
        f'{KeptAdmin.search_help_text} To find all rows of one object, enter its model and key, such as "app.model 12".'
    )

    @admin.display(description="object", ordering="object_pk")
    def of_object(self, row: OfObject) -> str:
        """Return a link to the object."""
        return link_to_object(self.admin_site, row.model_label, row.object_pk)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Shown], search_term: str
    ) -> tuple[QuerySet[Shown], bool]:
        """Return the rows of one object, or the newest rows that match."""
        label, _, key = search_term.strip().partition(" ")
        if "." in label and key:
            kept = stored_text(model_of(label), key.strip())
            return queryset.filter(model_label=label.lower(), object_pk=kept), False
        return super().get_search_results(request, queryset, search_term)


@admin.register(Action)
class ActionAdmin(KeptAdmin[Action]):
    """The manual actions of operators: who did what to how many objects, when and why."""

    list_display = ("at", "kind", "model_label", "count", "actor", "reason", "undoes")
    list_filter = ("kind", "at")
    search_fields = ("=model_label", "=actor", "reason")
    ordering = ("-at", "-pk")


@admin.register(Worker)
class WorkerAdmin(KeptAdmin[Worker]):
    """The worker processes of the last day."""

    list_display = (
        "shown_name", "host", "pid", "version", "status", "started", "heard_of", "running", "handled", "lost", "serves",
    )  # fmt: skip
    fields = (
        "name", "status", "heard_of", "holds", "running", "handled", "lost", "host", "pid", "version", "database",
        "started", "stopped", "models", "published", "id",
    )  # fmt: skip
    readonly_fields = ("status", "heard_of", "holds", "published")
    search_fields = ("=id", "host", "name")
    ordering = ("-heartbeat", "-pk")
    change_form_template = "stator/admin/live_form.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Return the workers with their status by the database's clock."""
        workers: Any = super().get_queryset(request)
        return workers.with_status()

    @admin.display(description="worker", ordering="name")
    def shown_name(self, worker: Worker) -> str:
        """Return the name of the worker, or its id."""
        return worker.name or worker.pk

    @admin.display(description="status", ordering="status")
    def status(self, worker: Worker) -> str:
        """Return whether the worker is alive, silent without a stop, or stopped."""
        return str(worker.status)

    @admin.display(description="heartbeat", ordering="heartbeat")
    def heard_of(self, worker: Worker) -> str:
        """Return the time since its latest heartbeat."""
        return f"{span(seconds_of(worker.now - worker.heartbeat))} ago"

    @admin.display(description="runs now")
    def holds(self, worker: Worker) -> str:
        """Return links to the objects whose claims it has, for how long, and how far each is."""
        rows = list(islice(held_by(worker), MAX_HELD + 1))
        if not rows:
            return "nothing"
        claims = {(one.label.lower(), str(one.pk)): one.token for one in rows}
        said = how_far(home_of(worker), claims)
        held = [
            (one, link_to_object(self.admin_site, one.label, str(one.pk)), span(one.running),
             said.get((one.label.lower(), str(one.pk))))
            for one in rows[:MAX_HELD]
        ]  # fmt: skip
        return render_to_string("stator/admin/held.html", {"held": held, "more": len(rows) > MAX_HELD})

    @admin.display(description="models")
    def serves(self, worker: Worker) -> str:
        """Return the models that it works on, or their number if they are many."""
        return ", ".join(worker.models) if len(worker.models) <= MAX_NAMED else f"{len(worker.models):,} models"
