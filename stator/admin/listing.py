"""Lists of rows in the admin: a paginator and filters that stay fast on tables of any size."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from django.contrib import admin
from django.contrib.admin import ListFilter, ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import DataError, router
from django.db.models import DateTimeField, Model, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import Combinable
from django.db.models.options import Options
from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from stator.admin.control_characters import Shown, SpellingAdmin
from stator.admin.export import AS, TYPES, exported
from stator.admin.fields import can_be_key, prefilled
from stator.db.search_lookups import PREFIX
from stator.querysets import OperatorQuerySet
from stator.rows.clock import moment_text
from stator.rows.meta import M, owner_of
from stator.rows.readings import read
from stator.rows.state_column import state_field
from stator.rows.workers import are_shown, live_workers
from stator.texts import COUNTED

# An address cannot give a range's two values; a pattern may be invalid, or keep a database busy forever.
UNASKABLE = {"range", "regex", "iregex"}
# The lookups of entries of ``search_fields`` by their first character.
SEARCHES = {"^": "istartswith", "=": "iexact"}
# What extensions show above a list, as HTML.
NOTICES: list[Callable[[admin.ModelAdmin, HttpRequest], Iterable[SafeString]]] = []
# The apps whose times have the usual form; a project shows its own times as it wants.
OURS = ("stator", "tasks")


class AtLeast(int):
    """A count that ended at a limit, and prints as such."""

    def __str__(self) -> str:
        return f"more than {int(self):,}"

    def __format__(self, spec: str) -> str:
        return str(self)


def bounded_count(rows: QuerySet[Model]) -> int:
    """Return the number of rows, counted up to ``COUNTED``."""
    count = rows.order_by()[: COUNTED + 1].count()
    return AtLeast(COUNTED) if count > COUNTED else count


def is_large(rows: QuerySet[Model]) -> bool:
    """Return whether there are more rows than are counted."""
    return isinstance(bounded_count(rows), AtLeast)


class BoundedPaginator(Paginator):
    """Pages over the first rows of a queryset; filters find later rows."""

    object_list: QuerySet[Model]

    @cached_property
    def first(self) -> list[object]:
        """The rows of the first page, and one more if there is one."""
        return list(self.object_list[: self.per_page + 1])

    @cached_property
    def count(self) -> int:
        """The number of rows on all pages."""
        # If few rows match, counting them would read the whole table a second time.
        return bounded_count(self.object_list) if len(self.first) > self.per_page else len(self.first)

    def page(self, number: int | str) -> Page:
        """Return a page; the first one is read already."""
        page = super().page(number)
        if page.number == 1:
            page.object_list = self.first[: self.per_page]
        return page


# The columns of a list, or the fields of a page: names, functions and groups.
Listed = list[Any] | tuple[Any, ...]
# What a template shows.
Context = dict[str, Any]


class BoundedChangeList(ChangeList):
    """A list that reads its rows once, sorts only by offered columns, and accepts any address."""

    is_judged = False

    def get_filters(self, request: HttpRequest) -> tuple[list[ListFilter], bool, dict[str, bool | str], bool, bool]:
        """Return the filters; refuse lookups that a database cannot answer like unknown fields."""
        for name, values in self.get_filters_params().items():
            if name.rpartition("__")[2] in UNASKABLE or any("\0" in value for value in values):
                raise IncorrectLookupParameters
        return super().get_filters(request)

    def get_ordering_field(self, field_name: str | Callable[..., object]) -> Combinable | str | None:
        """Return the field to sort by; None for a column that is not sortable, whatever the address says."""
        return super().get_ordering_field(field_name) if field_name in (self.sortable_by or ()) else None

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Model]) -> list[str | Combinable]:
        """Return the ordering; many rows are not ordered by a column without an index, so the filters matter."""
        if not self.is_judged:
            # An action asks a second time.
            self.is_judged = True
            self._judge(queryset)
        return list(super().get_ordering(request, queryset))

    def _judge(self, queryset: QuerySet[Model]) -> None:
        owner: Any = self.model_admin
        lacks_index = [name for name in self.sortable_by or () if owner.unsortable_if_many(name)]
        if not lacks_index:
            return
        try:
            # The list is read now, before Django itself says whether it is narrowed down.
            narrowed = self.query or self.get_filters_params()
            many = is_large(self.root_queryset) and (not narrowed or is_large(queryset))
        except (ValueError, OverflowError, DataError) as error:
            raise IncorrectLookupParameters from error
        if many:
            self.sortable_by = [name for name in self.sortable_by or () if name not in lacks_index]

    def enrich(self, rows: list[object]) -> None:
        """Read what the columns show beside the rows, for all rows together; here nothing."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the rows of the page and their number."""
        try:
            super().get_results(request)
        except (ValueError, OverflowError, DataError) as error:
            # Only the statement detects a key of too many digits or an impossible year.
            raise IncorrectLookupParameters from error
        # Editable lists need a queryset for their forms.
        if not (self.multi_page or self.model_admin.list_editable):
            self.result_list = self.paginator.first
        self.enrich(self.result_list)
        self.files = [(kind.upper(), self.get_query_string({AS: kind}, ["p"])) for kind in TYPES]


class AnyAddressAdmin(SpellingAdmin[Shown]):
    """Lists that stay fast on large tables, and pages of one row; both accept any address."""

    change_list: type[ChangeList] = BoundedChangeList
    change_list_template = "stator/admin/change_list.html"
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css = {"all": ("stator/admin.css",)}
        js = ("stator/admin.js",)

    @property
    def differs_by_object(self) -> bool:
        """Whether permissions depend on the object, so that each has to be checked; here none does."""
        return False

    def unsortable_if_many(self, name: str) -> bool:
        """Return whether only few rows are sorted by this column; here by any."""
        return False

    def get_list_display(self, request: HttpRequest) -> Listed:
        """Return the columns; times of our own tables are shown with their zone."""
        return self._with_moments(super().get_list_display(request))

    def get_fields(self, request: HttpRequest, obj: Shown | None = None) -> Listed:
        """Return the fields of a page; a page without a form shows times as a list does."""
        names = super().get_fields(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return names
        return self._with_moments(names)

    def _with_moments(self, names: Iterable[object]) -> list[object]:
        return [moment_column(self.opts, name) if isinstance(name, str) else name for name in names]

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Return the fields to search, with lookups that ignore case on every database."""
        return [ignoring_case(self.opts, str(name)) for name in super().get_search_fields(request)]

    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[ChangeList]:
        """Return the class of the list."""
        return self.change_list

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Show the list, send it as a file, or run an action on its rows."""
        if AS in request.GET and request.method in ("GET", "HEAD"):
            # As good as the other to whatever calls a view.
            return exported(self, request)  # type: ignore[return-value]
        if request.method == "POST":
            refuse_forbidden(self, request)
            keep_keys(self, request)
        return super().changelist_view(request, extra_context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Shown | None:
        """Return the row, or None for a key that no database accepts. An empty field name counts as none."""
        if "\0" in object_id:
            return None
        try:
            return super().get_object(request, object_id, from_field or None)
        except OverflowError:
            # SQLite raises this for a number of more than 64 bits if the key is a relation.
            return None

    def render_change_form(
        self,
        request: HttpRequest,
        context: Context,
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Shown | None = None,
    ) -> HttpResponse:
        """Render the page of a row, with what its admin shows beside the form."""
        # A form that is refused has written its values into the object.
        stored = self.get_queryset(request).filter(pk=obj.pk).first() if obj and request.method == "POST" else obj
        if stored is not None:
            context |= self.shown_of(request, stored)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def shown_of(self, request: HttpRequest, obj: Shown) -> Context:
        """Return what the page of a row shows beside the form; here nothing."""
        return {}

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the initial values of a new row's form: the values in the address that its fields can read."""
        if not (given := super().get_changeform_initial_data(request)):
            return {}
        return prefilled(self.get_form(request).base_fields, given)


@cache
def moment_column(options: "Options[Model]", name: str) -> str | Callable[[Model], str]:
    """Return a column of times in the usual form; any other column, and a project's own, as it is.

    Cached, because a list finds its columns by what they are.
    """
    field = next((each for each in options.fields if each.name == name), None)
    if options.app_label not in OURS or not isinstance(field, DateTimeField):
        return name

    @admin.display(description=str(field.verbose_name), ordering=name)
    def moment(row: Model) -> str:
        value = getattr(row, name)
        return "-" if value is None else format_html('<span class="stator-when">{}</span>', moment_text(value))

    # The file of a list has the value itself.
    moment.__name__ = moment.stator_field = name  # type: ignore[attr-defined]
    return moment


def refuse_forbidden(model_admin: ModelAdmin, request: HttpRequest) -> None:
    """Answer 403 to an action that the user was not offered; the admin itself would only ignore it."""
    chosen = request.POST.getlist("action")
    for action in model_admin.actions or ():
        function = action if callable(action) else getattr(model_admin, action, None)
        name = action if isinstance(action, str) else action.__name__
        for permission in getattr(function, "allowed_permissions", ()) if name in chosen else ():
            if not getattr(model_admin, f"has_{permission}_permission")(request):
                raise PermissionDenied


def keep_keys(model_admin: ModelAdmin, request: HttpRequest) -> None:
    """Remove selected keys from the request that no row of the model can have."""
    selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
    keys = [text for text in selected if can_be_key(model_admin.opts.model, text)]
    if keys != selected:
        posted = request.POST.copy()
        posted.setlist(ACTION_CHECKBOX_NAME, keys)
        request.POST = posted  # type: ignore[assignment]


def ignoring_case(options: "Options[Any]", name: str) -> str:
    """Return an entry of ``search_fields`` with a lookup that ignores case, unless the entry names a lookup."""
    lookup, path = SEARCHES.get(name[:1], "icontains"), name.lstrip("^=")
    for part in path.split(LOOKUP_SEP):
        try:
            field = options.pk if part == "pk" else options.get_field(part)
        except FieldDoesNotExist:
            # The name of a lookup, or a mistake that Django reports.
            return name
        options = field.path_infos[-1].to_opts if hasattr(field, "path_infos") else options
    return LOOKUP_SEP.join([path, f"{PREFIX}{lookup}"])


def operated(queryset: QuerySet[M]) -> OperatorQuerySet[M]:
    """Return the rows of a queryset as a queryset for operators."""
    rows: OperatorQuerySet[M] = OperatorQuerySet(queryset.model, using=getattr(queryset, "_db", None))
    return rows.filter(pk__in=queryset.order_by().values("pk"))


def notices(model_admin: admin.ModelAdmin, request: HttpRequest) -> dict[str, object]:
    """Return what holds up many rows of a list: the lack of a worker, and what extensions know; a statement each."""
    owner = owner_of(model_admin.model)
    using, label = router.db_for_write(owner), owner._meta.label_lower
    return {
        "stator_notices": [notice for further in NOTICES for notice in further(model_admin, request)],
        "stator_unserved": not state_field(owner).is_left
        and are_shown()
        and not any(worker.serves(label) for worker in live_workers(using)),
        # Not only worker processes may serve the objects; the overview and their pages say whether anything does.
        "stator_has_others": read("own_workers", using, label, otherwise=False),
    }
