"""StatorAdmin: a managed model in the admin. ``row_summary`` and ``detail`` show its objects."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import ForeignKey, ManyToManyField
from django.db.models.expressions import Combinable
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.http import urlencode

from stator.admin import actions, detail, filters, row_summary
from stator.admin.filters import ConditionFilter, ErrorFilter
from stator.admin.listing import AnyAddressAdmin, BoundedChangeList, Context, Listed, notices
from stator.extensions.events.admin.managed import HasEventPages
from stator.extensions.undo.admin.pages import HasUndoPage
from stator.management.permissions import force_permission
from stator.models import StatorModel
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.state_column import state_field, state_name

COLUMNS = (
    "stator_state", "stator_why", "stator_next", "stator_lease", "stator_age", "stator_attempts", "stator_failures",
)  # fmt: skip
# A link to all objects that fail with the error.
ERROR = '{} <a class="stator-same" href="?{}">{}</a>'
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Managed = TypeVar("Managed", bound=StatorModel, default=Any)
else:
    from typing import TypeVar

    Managed = TypeVar("Managed")

# Shown by the framework itself, unless the project lists them among its own fields.
OWN = (*COLUMNS, *sorted(FRAMEWORK_COLUMNS))


class ManagedList(BoundedChangeList):
    """A page of objects with the progress of claimed objects and the errors of failing ones."""

    def get_ordering_field(self, field_name: str | Callable[..., object]) -> Combinable | str | None:
        """Return the field to sort by; for the state, the one that has it."""
        ordering = super().get_ordering_field(field_name)
        return state_field(self.model).name if ordering == "stator_state" else ordering

    def enrich(self, rows: list[Any]) -> None:
        """Read the progress of attempts and the latest errors."""
        said = row_summary.progress(rows)
        errors = row_summary.latest_errors(filter(row_summary.is_failing, rows))
        for row in rows if said or errors else ():
            row.stator_reached = said.get(row.pk)
            row.stator_error = errors.get(row.pk)

    def get_results(self, request: HttpRequest) -> None:
        """Read the rows, and the actions that the filters suggest for everything that they find."""
        super().get_results(request)
        owner: Any = self.model_admin
        # What Django's own search narrows is no filter of ours.
        self.offered = owner.offered_in(request) if self.result_count and not self.query else []


class StatorAdmin(
    HasEventPages[Managed],  # stator.extensions.events
    HasUndoPage[Managed],  # stator.extensions.undo
    AnyAddressAdmin[Managed],
):
    """Adds to any ``ModelAdmin``: the state in lists and on pages, filters, and actions of operators.

    Retry and unlock need the permission to change; a move by hand needs ``force_<model>``. If a project overrides
    ``has_change_permission``, its answer counts for all three, for each object. Override ``has_retry_permission`` or
    ``has_move_permission`` for another rule, for instance in an admin that lets nobody edit.

    Related objects are entered by key. To offer a choice, name the field in ``autocomplete_fields`` or
    ``radio_fields``, or pass a ``widget`` in ``formfield_for_foreignkey``.
    """

    change_list: type[ChangeList] = ManagedList
    change_form_template = "stator/admin/change_form.html"
    live_template = "stator/admin/live.html"

    def __init__(self, model: type[Managed], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.raw_id_fields = (*self.raw_id_fields, *self._without_widget())  # type: ignore[misc]
        if self.actions is not None:
            further = [act for acts in actions.FURTHER for act in acts(model)]
            self.actions = [*self.actions, *actions.ACTIONS, *further]

    def _without_widget(self) -> Iterator[str]:
        """Yield the relations without a widget of the project's choice: a list of all rows might have a million."""
        chosen = {*self.raw_id_fields, *self.autocomplete_fields, *self.radio_fields}
        chosen.update((*self.filter_horizontal, *self.filter_vertical))
        for field in (*self.opts.fields, *self.opts.many_to_many):
            if isinstance(field, ForeignKey | ManyToManyField) and field.name not in chosen:
                yield field.name

    # Permissions

    def has_retry_permission(self, request: HttpRequest, obj: Managed | None = None) -> bool:
        """Return whether the user may retry objects and end claims."""
        return bool(self.has_change_permission(request, obj))

    def has_move_permission(self, request: HttpRequest, obj: Managed | None = None) -> bool:
        """Return whether the user may move objects by hand."""
        if not request.user.has_perm(force_permission(self.model)):
            return False
        return not self._overrides("change") or bool(self.has_change_permission(request, obj))

    @property
    def differs_by_object(self) -> bool:
        """Whether the project overrides a permission, so that each object has to be checked."""
        return any(map(self._overrides, actions.PERMISSIONS))

    def _overrides(self, permission: str) -> bool:
        name = f"has_{permission}_permission"
        return getattr(type(self), name) is not getattr(StatorAdmin, name)

    # Lists

    def get_list_display(self, request: HttpRequest) -> Listed:
        """Return the project's columns, then the framework's."""
        own = [*super().get_list_display(request)]
        shown = {"stator_state"} if state_field(self.model).name in own else set()
        return [*own, *(name for name in COLUMNS if name not in shown.union(own))]

    def get_list_filter(self, request: HttpRequest) -> Listed:
        """Return the project's filters, then the framework's."""
        own = [*super().get_list_filter(request)]
        further = [each for of_model in filters.FURTHER for each in of_model(self.model)]
        column = state_field(self.model).name
        return [*own, *([column] if column not in own else []), ConditionFilter, ErrorFilter, *further]

    def offered_in(self, request: HttpRequest) -> list[tuple[str, str, str]]:
        """Return the actions that a list's filters suggest and the user may do: name, label and state to move to."""
        may, asked, field = self.get_actions(request), request.GET, state_field(self.model)
        state = field.find(asked.get(f"{field.name}__exact", asked.get(field.name, "")))
        offers: list[tuple[str, str, str]] = []
        if asked.get("condition") == "quarantined":
            offers = [("stator_release", "Release from quarantine", "")]
        elif ErrorFilter.parameter_name in asked or asked.get("condition") == "failing":
            offers = [("stator_retry", "Retry now", "")]
        elif state is not None and state.leave_by_hand:
            names = actions.next_by_hand(state)
            offers = [("stator_move", f"Move to {name}\N{HORIZONTAL ELLIPSIS}", name) for name in names]
        return [each for each in offers if each[0] in may]

    def unsortable_if_many(self, name: str) -> bool:
        """Return whether a column has no index, so that only few rows are sorted by it."""
        return name in (*COLUMNS, state_field(self.model).name)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Show the list, or run an action on its rows."""
        return super().changelist_view(request, {**notices(self, request), **(extra_context or {})})

    @admin.display(description="state", ordering="stator_state")
    def stator_state(self, row: StatorModel) -> str:
        """Return the stored name of the state, known to the code or not."""
        return format_html(
            '<span class="stator-badge stator-{}">{}</span>', row_summary.situation(row).kind, state_name(row)
        )

    @admin.display(description="why")
    def stator_why(self, row: StatorModel) -> str:
        """Return in a few words why the object does not move, with the progress of its attempt."""
        why = row_summary.situation(row).why
        if error := getattr(row, "stator_error", None):
            why = format_html(ERROR, why, urlencode({ErrorFilter.parameter_name: error.fingerprint}), error.line)
        if (reached := getattr(row, "stator_reached", None)) is None:
            return why
        return format_html("{} {}", why, render_to_string("stator/admin/bar.html", {"progress": reached}))

    @admin.display(description="for", ordering="-state_changed")
    def stator_age(self, row: StatorModel) -> str:
        """Return how long the object has been in its state, marked if that is longer than expected."""
        if not (within := row_summary.expected_within(row)):
            return row_summary.age(row)
        title = f"stuck: expected within {within}"
        return format_html('<span class="stator-late" title="{}">{}</span>', title, row_summary.age(row))

    @admin.display(description="attempts", ordering="state_attempts")
    def stator_attempts(self, row: StatorModel) -> int:
        """Return the attempts since the object entered its state."""
        return int(row.state_attempts)

    @admin.display(description="failures", ordering="state_failures")
    def stator_failures(self, row: StatorModel) -> int:
        """Return the number of errors in a row."""
        return int(row.state_failures)

    @admin.display(description="lease", ordering="state_locked_until")
    def stator_lease(self, row: StatorModel) -> str:
        """Return who holds the object."""
        return row_summary.lease(row)

    @admin.display(description="next attempt", ordering="state_next_attempt")
    def stator_next(self, row: StatorModel) -> str:
        """Return when the object will be attempted."""
        return row_summary.situation(row).next

    # Pages of objects

    def get_urls(self) -> list[URLPattern]:
        """Return the project's URLs, that of the live part of an object's page, and those of extensions."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_stator"
        live = path("<path:object_id>/stator/", self.admin_site.admin_view(self.live_view), name=name)
        return [live, *super().get_urls()]

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return only the live part of a page, for the script that refreshes it."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        obj = self.visible(request, object_id)
        request.current_app = self.admin_site.name
        return TemplateResponse(request, self.live_template, self.live_context(request, obj))

    def visible(self, request: HttpRequest, object_id: str) -> Managed:
        """Return an object that the user may see."""
        obj = self.get_object(request, unquote(object_id))
        if obj is None:
            raise Http404(f"{self.opts.label} {object_id} is gone")
        if not self.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        return obj

    def live_context(self, request: HttpRequest, obj: Managed) -> Context:
        """Return the context of a page's live part; override it, and ``live_template``, to show more."""
        return detail.context_of(self, request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Managed | None = None) -> Listed:
        """Return the project's fields and the framework's columns."""
        if obj is None:
            return super().get_readonly_fields(request, obj)
        # A state that forms may edit is moved here by the action, which needs a permission of its own.
        field = state_field(self.model)
        state = (field.name,) if field.editable else ()
        return [*super().get_readonly_fields(request, obj), *OWN, *state]

    def get_fields(self, request: HttpRequest, obj: Managed | None = None) -> Listed:
        """Return the project's fields; the live part of the page has the framework's columns."""
        return [name for name in super().get_fields(request, obj) if name not in OWN]

    def shown_of(self, request: HttpRequest, obj: Managed) -> Context:
        """Return the context of the live part."""
        return self.live_context(request, obj) | {"stator_live": self.live_template}
