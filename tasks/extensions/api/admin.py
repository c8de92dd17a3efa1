"""Admin of consumers: programs that use the HTTP API."""

from typing import ClassVar

from django import forms
from django.contrib import admin
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from stator.admin.listing import AnyAddressAdmin
from tasks.extensions.api.models import Consumer
from tasks.queue.queues import Queue


class QueuesField(forms.ModelMultipleChoiceField):
    """Django's field, which also refuses keys with too many digits for SQLite."""

    def clean(self, value: object) -> QuerySet[Queue]:
        """Return the chosen queues."""
        try:
            return super().clean(value)
        except OverflowError as error:
            raise forms.ValidationError(self.error_messages["invalid_list"], "invalid_list") from error


@admin.register(Consumer)
class ConsumerAdmin(AnyAddressAdmin):
    """Admin of API consumers. Adding one shows its token, once."""

    list_display = ("name", "shown_prefix", "enabled", "shown_verbs", "expires", "used_minute")
    list_filter = ("enabled", "may_publish", "may_claim", "may_query", "may_configure")
    search_fields = ("name", "prefix")
    filter_horizontal = ("queues",)
    formfield_overrides: ClassVar[dict[type[models.Field], dict[str, object]]] = {
        models.ManyToManyField: {"form_class": QueuesField}
    }
    readonly_fields = ("shown_prefix", "used_minute", "created")
    show_facets = admin.ShowFacets.ALLOW

    @admin.display(description="token")
    def shown_prefix(self, consumer: Consumer) -> str:
        """Return the public prefix of the token."""
        return f"tk_{consumer.prefix}_..." if consumer.prefix else "shown after you save"

    @admin.display(description="may")
    def shown_verbs(self, consumer: Consumer) -> str:
        """Return what the consumer may do."""
        return ", ".join(consumer.verbs)

    def save_model(self, request: HttpRequest, obj: Consumer, form: forms.ModelForm, change: bool) -> None:
        """Issue a token for a new consumer; else write only changed fields, because the API updates the counters."""
        if change:
            obj.save(update_fields=[name for name in form.changed_data if name != "queues"])
            return
        obj.shown_token = obj.issue()
        super().save_model(request, obj, form, change)

    def response_add(self, request: HttpRequest, obj: Consumer, post_url_continue: str | None = None) -> HttpResponse:
        """Show the token on a page of its own, so that it enters no cookie, session, cache or log."""
        context = {**self.admin_site.each_context(request), "title": "Token", "consumer": obj, "token": obj.shown_token}
        response = TemplateResponse(request, "admin/tasks/consumer/token.html", context)
        response["Cache-Control"] = "no-store"
        return response
