"""The overview of all models, workers, errors and queues, and the bulk retry of one kind of error."""

import logging
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from stator.admin.access import Pages
from stator.admin.read_only import KeptAdmin
from stator.admin.search import results
from stator.admin_site.sites import StatorAdminSite
from stator.extensions.admin.sections import sections
from stator.extensions.overview.all_schemas import show_schemas
from stator.extensions.overview.panels import HEADS, show
from stator.extensions.problems.in_schemas import schemas_of
from stator.models import Overview, StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.actions import Action
from stator.rows.clock import local_now
from stator.rows.due_times import AT_ONCE, retry_spread
from stator.rows.meta import by_database, managed
from stator.rows.readings import read
from stator.scopes import entering
from stator.survey.flow import DAY, LATEST, PERIODS
from stator.survey.looks import works_in_schemas
from stator.survey.numbers import GROUPED
from stator.texts import escape

logger = logging.getLogger("stator.admin")

# Objects that one request retries; the user asks again for the rest.
MAX_RETRIED = 5000

# The longest words to search for.
MAX_WORDS = 200

# Seconds between refreshes, with JavaScript and without.
EVERY, EVERY_WITHOUT = 7, 60


class RetryForm(forms.Form):
    """The errors to retry, and how many objects in a minute."""

    model = forms.CharField(max_length=200)
    fingerprint = forms.CharField(max_length=16)
    per_minute = forms.FloatField(min_value=0.1, max_value=1_000_000)

    def clean_model(self) -> type[StatorModel]:
        """Return the managed model with that label."""
        label = self.cleaned_data["model"].lower()
        for model in managed(StatorModel.subclasses):
            if model._meta.label_lower == label:
                return model
        raise forms.ValidationError("there is no managed model with this label")


@admin.register(Overview)
class OverviewAdmin(KeptAdmin):
    """One page for users with ``view_overview``; names of a model's objects need that model's permissions.

    On a site with ``SCHEMAS`` it shows the problems of all schemas, or one of them for ``?schema=NAME``; but if the
    request is in the schema of a tenant already, that schema alone.
    """

    def get_urls(self) -> list[URLPattern]:
        """Return only the URL of the page, under the name of a list, so that the admin's index links to it."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Show the page, or its live part for ``?live=1``, or retry."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        request.current_app = self.admin_site.name
        # Read before a schema is chosen, as the user was: the schema may have such tables too.
        live, in_many = "live" in request.GET, works_in_schemas()
        around = self.admin_site.each_context(request) if in_many and not live else {}
        schema = ""
        if words := request.GET.get("q", ""):
            return self._results(request, words)
        if in_many:
            schema = request.GET.get("schema", "")
            if not schema:
                return self._schemas(request, around)
            if schema not in schemas_of(managed(StatorModel.subclasses)):
                raise Http404(f"{schema!r} is not among the schemas that workers serve")
        with entering(schema):
            if request.method == "POST":
                return self._retry(request)
            context = self._context(request, schema)
            if not (in_many or live):
                # After the problems are found, whose number it has.
                around = self.admin_site.each_context(request)
            page = self._page(request, "overview_live.html", {**around, **context})
            return page.render() if schema else page

    def _results(self, request: HttpRequest, words: str) -> HttpResponse:
        """Show where the words are found."""
        section = results(self.admin_site, request, words[:MAX_WORDS])
        around = self.admin_site.each_context(request)
        context = {**around, "title": section.title, "section": section, "words": words[:MAX_WORDS]}
        return TemplateResponse(request, "stator/admin/inbox.html", context)

    def _page(self, request: HttpRequest, part: str, context: dict[str, object]) -> TemplateResponse:
        """Return the page with this part, or only the part."""
        part = f"stator/admin/{part}"
        template = part if "live" in request.GET else "stator/admin/overview.html"
        return TemplateResponse(request, template, {"title": "Overview", "opts": self.opts, "part": part, **context})

    def _schemas(self, request: HttpRequest, around: dict[str, object]) -> HttpResponse:
        """Show the problems and figures of all schemas."""
        models = managed(StatorModel.subclasses)
        shown = show_schemas(models, Pages(self.admin_site, request, elsewhere=True))
        context = {
            **around, "shown": shown, "now": local_now(), "every": EVERY_WITHOUT, "every_without": EVERY_WITHOUT,
        }  # fmt: skip
        return self._page(request, "overview_schemas.html", context)

    def _context(self, request: HttpRequest, schema: str) -> dict[str, object]:
        everything = sorted(managed(StatorModel.subclasses), key=lambda model: model._meta.label)
        label = request.GET.get("model", "").lower()
        only = next((model for model in everything if model._meta.label_lower == label), None)
        asked = {name: value for name, value in (("schema", schema), ("model", label if only else "")) if value}
        period = next((one for one in PERIODS if one == request.GET.get("period")), DAY)
        now = local_now()
        added = sections(request)
        name = only._meta.label if only else ""
        shown = show(
            [only] if only else everything, Pages(self.admin_site, request, elsewhere=bool(schema)), now,
            only=only, period=period, schema=schema,
        )  # fmt: skip
        if only is None and not schema and isinstance(self.admin_site, StatorAdminSite):
            self.admin_site.note_problems(len(shown.problems))
        return {
            "title": name or "Overview",
            "schema": schema,
            "now": now,
            "period": period,
            "every": EVERY,
            "every_without": EVERY_WITHOUT,
            "shown": shown,
            "only": name,
            "heads": HEADS,
            "of_model": f"?{urlencode({**({'schema': schema} if schema else {}), 'model': ''})}",
            "sections": [section.without_links() for section in added] if schema else added,
            "grouped": f"{GROUPED:,}",
            "latest": f"{LATEST:,}",
            "several_databases": len(by_database(everything)) > 1,
            "here": _address(asked, period),
            "periods": [(one, "" if one == period else _address(asked, one)) for one in PERIODS],
        }  # fmt: skip

    def _retry(self, request: HttpRequest) -> HttpResponse:
        """Retry the failing objects of one fingerprint, spread over time; then redirect to the page."""
        form = RetryForm(request.POST)
        if not form.is_valid():
            said = "; ".join(f"{name}: {' '.join(map(str, texts))}" for name, texts in form.errors.items())
            self.message_user(request, f"Nothing was retried: {escape(said)}", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        model, per_minute = form.cleaned_data["model"], form.cleaned_data["per_minute"]
        pages = Pages(self.admin_site, request)
        if not pages.may_retry(model):
            raise PermissionDenied
        using, actor = router.db_for_write(model), request.user.get_username()
        rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=using)
        pages_of_keys = read("fingerprinted", using, rows, form.cleaned_data["fingerprint"], AT_ONCE, otherwise=())
        permitted = (pages.retryable(model, pks, using) for pks in pages_of_keys)
        action = Action.of(model, "retry", actor)
        count = retry_spread(rows, permitted, per_minute=per_minute, most=MAX_RETRIED, action=action)
        fields = {"model": model._meta.label_lower, "actor": actor, "count": count, "per_minute": per_minute}
        logger.info("stator.retried_at_rate", extra=fields | {"fingerprint": form.cleaned_data["fingerprint"]})
        self._tell(request, model, count, per_minute)
        return HttpResponseRedirect(request.get_full_path())

    def _tell(self, request: HttpRequest, model: type[StatorModel], count: int, per_minute: float) -> None:
        noun = model._meta.verbose_name if count == 1 else model._meta.verbose_name_plural
        if not count:
            self.message_user(request, f"No {noun} with this error can be retried now.", messages.WARNING)
            return
        minutes = count / per_minute
        over = f"over the next {minutes:,.0f} minutes" if minutes >= 1.5 else "within a minute or so"
        become = "becomes" if count == 1 else "become"
        more = " One request retries no more; repeat it for the rest." if count >= MAX_RETRIED else ""
        said = f"{count:,} {noun} {become} due {over}, {per_minute:g} a minute.{more}"
        self.message_user(request, said, messages.SUCCESS)


def _address(asked: dict[str, str], period: str) -> str:
    return f"?{urlencode(asked | ({} if period == DAY else {'period': period}))}"
