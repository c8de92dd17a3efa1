"""StatorAdmin: a managed model in the admin. What it shows is in ``sheet``, what it does in ``acts``."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.http import HttpRequest, HttpResponse

from stator.admin import acts, sheet
from stator.admin.listing import BoundedPaginator, ConditionFilter
from stator.permissions import force_permission

COLUMNS = ("stator_state", "stator_age", "stator_attempts", "stator_failures", "stator_lease", "stator_next")
SHEET = (
    ("stator_state", "stator_age", "state_changed"),
    ("stator_next", "state_ready", "state_next_attempt"),
    ("state_attempts", "state_failures", "state_crashes"),
    ("stator_lease", "state_locked_until", "state_claim"),
    ("state_attempted", "state_version"),
)
SHEET_NAMES = tuple(name for row in SHEET for name in row)


class StatorAdmin(admin.ModelAdmin):
    """Adds to any ``ModelAdmin``: the state in lists and on pages, filters, and the acts of operators.

    Retry and unlock need the permission to change, a move by hand needs ``force_<model>``. Where a project overrides
    ``has_change_permission`` its answer counts for all three, object by object; override ``has_retry_permission`` or
    ``has_move_permission`` to decide otherwise, for instance in an admin that lets nobody edit.
    """

    change_form_template = "stator/admin/change_form.html"
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css = {"all": ("stator/admin.css",)}

    def __init__(self, model: Any, admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        if self.actions is not None:
            self.actions = [*self.actions, *acts.ACTS]

    # Permissions

    def has_retry_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may have objects attempted now, and end claims."""
        return bool(self.has_change_permission(request, obj))

    def has_move_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may move objects by hand."""
        if not request.user.has_perm(force_permission(self.model)):
            return False
        return not self._overrides("has_change_permission") or bool(self.has_change_permission(request, obj))

    @property
    def differs_by_object(self) -> bool:
        """Whether the project decides about permissions itself, so that each object has to be asked about."""
        return any(map(self._overrides, ("has_change_permission", "has_retry_permission", "has_move_permission")))

    def _overrides(self, name: str) -> bool:
        original = getattr(StatorAdmin, name)
        return getattr(type(self), name) is not original

    # Lists

    def get_list_display(self, request: HttpRequest) -> Any:
        """The project's columns, then those of the framework."""
        own = [*super().get_list_display(request)]
        shown = {"stator_state"} if "state" in own else set()
        return [*own, *(name for name in COLUMNS if name not in shown.union(own))]

    def get_list_filter(self, request: HttpRequest) -> Any:
        """The project's filters, then those of the framework."""
        own = [*super().get_list_filter(request)]
        return [*own, *(["state"] if "state" not in own else []), ConditionFilter]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list, or an act on rows of it."""
        if request.method == "POST":
            acts.refuse_forbidden(self, request)
        return super().changelist_view(request, extra_context)

    @admin.display(description="state", ordering="state")
    def stator_state(self, row: Any) -> str:
        """The name as it is stored, known to the code or not."""
        return str(row.state)

    @admin.display(description="for", ordering="-state_changed")
    def stator_age(self, row: Any) -> str:
        """How long the object has been in its state."""
        return sheet.age(row)

    @admin.display(description="attempts", ordering="state_attempts")
    def stator_attempts(self, row: Any) -> int:
        """Attempts since the object entered its state."""
        return int(row.state_attempts)

    @admin.display(description="failures", ordering="state_failures")
    def stator_failures(self, row: Any) -> int:
        """Errors in a row."""
        return int(row.state_failures)

    @admin.display(description="lease", ordering="state_locked_until")
    def stator_lease(self, row: Any) -> str:
        """Who holds the object."""
        return sheet.lease(row)

    @admin.display(description="next attempt", ordering="state_next_attempt")
    def stator_next(self, row: Any) -> str:
        """When the object will be attempted."""
        return sheet.next_attempt(row)

    # Pages of objects

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The project's, and the columns of the framework."""
        return [*super().get_readonly_fields(request, obj), *(SHEET_NAMES if obj is not None else ())]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """The project's fields; the columns of the framework have a section of their own."""
        return [name for name in super().get_fields(request, obj) if name not in SHEET_NAMES]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The project's sections, then that of the framework."""
        own = [*super().get_fieldsets(request, obj)]
        if obj is None:
            return own
        taken = set(flatten_fieldsets(own))
        rows = [tuple(name for name in row if name not in taken) for row in SHEET]
        return [*own, ("Stator", {"fields": [row for row in rows if row], "classes": ("stator",)})]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page, with the latest report, the history, and what the user may do."""
        obj = kwargs.get("obj") or (args[3] if len(args) > 3 else None)
        if obj is not None:
            context |= {
                "stator_report": sheet.latest_report(obj),
                "stator_traceback": request.user.has_perm("stator.view_report"),
                "stator_history": sheet.latest_history(obj),
                "stator_acts": self._acts_on(request, obj),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def _acts_on(self, request: HttpRequest, obj: Any) -> list[dict[str, str]]:
        if self.actions is None or not self.has_view_or_change_permission(request):
            return []
        state = obj.state_graph.states.get(obj.state)
        useful = {
            acts.stator_retry: state is not None and state.automatic and obj.state_claim is None,
            acts.stator_unlock: obj.state_claim is not None,
            acts.stator_move: True,
        }
        may = {"retry": self.has_retry_permission, "move": self.has_move_permission}
        return [
            {"name": act.__name__, "label": act.short_description}
            for act in acts.ACTS
            if useful[act] and all(may[name](request, obj) for name in act.allowed_permissions)
        ]
