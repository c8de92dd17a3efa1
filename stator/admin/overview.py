"""The overview of all models, workers, errors and queues, and the bulk retry of one kind of error."""

import logging
from typing import Any, TypedDict
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone

from stator.admin.access import Pages
from stator.admin.panels import show
from stator.admin.read_only import KeptAdmin
from stator.admin.source import source_for
from stator.models import StatorModel
from stator.overview.errors import GROUPED, fingerprinted
from stator.overview.flow import DAY, PERIODS
from stator.overview.sections import sections
from stator.overview.stays import LATEST
from stator.querysets import OperatorQuerySet
from stator.rows.meta import by_database, managed
from stator.rows.retry_at_rate import AT_ONCE, retry_spread
from stator.texts import escape

logger = logging.getLogger("stator.admin")

# Objects that one request retries; the user asks again for the rest.
MAX_RETRIED = 5000

# Models of one page: each takes as many statements as it has states.
MODELS = 12

# Seconds between refreshes, with JavaScript and without.
EVERY, EVERY_WITHOUT = 7, 60


class _Asked(TypedDict, total=False):
    model: str
    page: int


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


class OverviewAdmin(KeptAdmin):
    """One page for users with ``view_overview``; names of a model's objects need that model's permissions."""

    def get_urls(self) -> list[URLPattern]:
        """Return only the URL of the page, under the name of a list, so that the admin's index links to it."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the page, or its live part for ``?live=1``, or retry."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._retry(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        live = "live" in request.GET
        request.current_app = self.admin_site.name
        template = "stator/admin/overview_live.html" if live else "stator/admin/overview.html"
        return TemplateResponse(request, template, self._context(request, live))

    def _context(self, request: HttpRequest, live: bool) -> dict[str, object]:
        everything = sorted(managed(StatorModel.subclasses), key=lambda model: model._meta.label)
        models, asked = _chosen(request, everything)
        period = next((one for one in PERIODS if one == request.GET.get("period")), DAY)
        now = timezone.localtime() if timezone.is_aware(timezone.now()) else timezone.now()
        sources = {alias: source_for(request, alias) for alias in by_database(everything)}
        return {
            **({} if live else self.admin_site.each_context(request)),
            "title": "Overview",
            "opts": self.opts,
            "now": now,
            "period": period,
            "every": EVERY,
            "every_without": EVERY_WITHOUT,
            "shown": show(
                models, models if "model" in asked else everything, Pages(self.admin_site, request), now,
                period=period, read=lambda alias: sources[alias].alias,
            ),
            "sources": [source for source in sources.values() if source.note],
            "only": models[0]._meta.label if "model" in asked else "",
            "sections": sections(request),
            "grouped": f"{GROUPED:,}",
            "latest": f"{LATEST:,}",
            "several_databases": len(by_database(models)) > 1,
            "here": _address(asked, period),
            "periods": [(one, "" if one == period else _address(asked, one)) for one in PERIODS],
            "pages": _pages(asked, len(everything), period),
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
        found = fingerprinted(rows, form.cleaned_data["fingerprint"], AT_ONCE)
        permitted = (pages.retryable(model, pks, using) for pks in found)
        count = retry_spread(rows, permitted, per_minute=per_minute, most=MAX_RETRIED, actor=actor)
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


def _chosen(request: HttpRequest, models: list[type[StatorModel]]) -> tuple[list[type[StatorModel]], _Asked]:
    """Return the requested models, one or a page, and their query parameters; the first page for invalid ones."""
    label = request.GET.get("model", "").lower()
    if one := [model for model in models if model._meta.label_lower == label]:
        return one, {"model": label}
    text = request.GET.get("page", "")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 1
    first = (number - 1) * MODELS
    if not 0 < first < len(models):
        return models[:MODELS], {}
    return models[first : first + MODELS], {"page": number}


def _address(asked: _Asked, period: str) -> str:
    return f"?{urlencode(asked | ({} if period == DAY else {'period': period}))}"


def _pages(asked: _Asked, count: int, period: str) -> list[tuple[int, str]]:
    """Return each page with its address, which is empty for the current one; nothing if one page holds all."""
    numbers = range(1, 1 + -(-count // MODELS))
    if len(numbers) < 2:
        return []
    here = 0 if "model" in asked else asked.get("page", 1)
    return [(number, "" if number == here else _address({"page": number}, period)) for number in numbers]
