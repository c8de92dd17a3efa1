"""Pauses in the admin: users who may retry objects of a model may pause and resume them."""

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router
from django.db.models import BooleanField, Case, Model, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse

from stator.admin.access import Pages
from stator.admin.confirmation import back
from stator.admin.fields import SPAN_HELP, JSONField, SpanField
from stator.admin.read_only import KeptAdmin
from stator.models import Pause, StatorModel
from stator.rows.meta import model_named, model_of
from stator.rows.pauses import end_chosen, in_force, keep_pause, planned_pause
from stator.texts import counted, escape

SHOWN = ("model_label", "state", "where", "reason", "actor", "created", "until")


class PauseForm(forms.ModelForm):
    """What to pause, why and for how long; refuses the input that ``manage.py stator pause`` refuses."""

    model_label = forms.ChoiceField(label="Model")
    where = JSONField(
        required=False, help_text='Values of fields that an object must have, such as {"tenant": 3}; empty: all.'
    )
    seconds = SpanField(required=False, label="Pause for", help_text=f"{SPAN_HELP} Empty: until it is resumed.")

    # The models and name of the requesting user, set by a subclass.
    labels: tuple[tuple[str, str], ...] = ()
    actor = ""

    class Meta:
        model = Pause
        fields = ("model_label", "state", "where", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model_label"].choices = [("", "---------"), *self.labels]  # type: ignore[attr-defined]
        self.fields["state"].help_text = "Empty: all states."

    def clean(self) -> Any:
        """Return the data of a pause; raise an error of one line if workers could not obey it."""
        values: Any = super().clean()
        if self.errors:
            return values
        model = model_named(values["model_label"])
        try:
            self.planned = planned_pause(
                model, router.db_for_write(model), state=values["state"] or None, where=values["where"],
                reason=values["reason"], actor=self.actor, seconds=values["seconds"],
            )  # fmt: skip
        except ValueError as error:
            raise ValidationError(escape(" ".join(str(error).split()))) from error
        return values


@admin.action(description="Resume", permissions=["end"])
def stator_end(model_admin: "PauseAdmin", request: HttpRequest, queryset: QuerySet[Pause]) -> HttpResponse | None:
    """End the pauses."""
    labels = set(queryset.order_by().values_list("model_label", flat=True).distinct())
    permitted = {label for label in labels if model_admin.may_pause(request, label)}
    if labels and not permitted:
        raise PermissionDenied
    actor, count = request.user.get_username(), 0
    for label in sorted(permitted):
        pauses = queryset.filter(model_label=label)
        for pause in pauses.filter(in_force()):
            model_admin.log_change(request, pause, "Resumed.")
        count += end_chosen(pauses, label, actor)
    level = messages.SUCCESS if count else messages.WARNING
    model_admin.message_user(request, f"{counted(count, 'pause')} resumed.", level)
    return back(model_admin, request)


@admin.register(Pause)
class PauseAdmin(KeptAdmin):
    """Pauses are made and ended, never changed.

    Both need the permission to retry objects of the model. Users who have it for any model see the pauses of those
    models; users with ``view_pause`` see all pauses.
    """

    actions = (stator_end,)
    list_display = ("model_label", "state", "where_line", "reason", "actor", "created", "until", "in_force")
    search_fields = ("=model_label", "=actor")
    ordering = ("-pk",)

    # Permissions

    def may_pause(self, request: HttpRequest, label: str) -> bool:
        """Return whether the user may pause and resume a model; an unknown model needs ``change_pause``."""
        if (model := model_of(label)) is None:
            return bool(request.user.has_perm("stator.change_pause"))
        return Pages(self.admin_site, request).may_retry(model)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return whether there is a model that the user may pause."""
        return bool(self._labels(request))

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may end any pauses; each model is checked later."""
        return self.has_add_permission(request) or request.user.has_perm("stator.change_pause")

    def has_view_permission(self, request: HttpRequest, obj: Pause | None = None) -> bool:
        """Return whether the user may see a pause, or any."""
        if super().has_view_permission(request, obj):
            return True
        return self.has_end_permission(request) if obj is None else self.may_pause(request, obj.model_label)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the app is shown to the user because of pauses."""
        return super().has_module_permission(request) or self.has_view_permission(request)

    def _labels(self, request: HttpRequest) -> tuple[tuple[str, str], ...]:
        models = sorted(StatorModel.subclasses, key=lambda model: model._meta.label)
        labels = ((model._meta.label_lower, model._meta.label) for model in models)
        return tuple((value, label) for value, label in labels if self.may_pause(request, value))

    # Lists

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pause]:
        """Return the pauses that the user may see, with whether each is in force by the database's clock."""
        active = When(pk__in=Pause.objects.active().values("pk"), then=Value(True))
        rows = super().get_queryset(request).annotate(active=Case(active, default=False, output_field=BooleanField()))
        if super().has_view_permission(request):
            return rows
        labels = rows.order_by().values_list("model_label", flat=True).distinct()
        return rows.filter(model_label__in=[label for label in labels if self.may_pause(request, label)])

    @admin.display(description="in force", boolean=True, ordering="active")
    def in_force(self, pause: Any) -> bool:
        """Return whether workers obey it now."""
        return bool(pause.active)

    @admin.display(description="where")
    def where_line(self, pause: Pause) -> str:
        """Return the values; "" if all objects are meant."""
        return json.dumps(pause.where, ensure_ascii=False)[:200] if pause.where else ""

    # Making one

    def get_fields(self, request: HttpRequest, obj: Pause | None = None) -> Any:
        """Return the fields of the form, or those to show."""
        return (*PauseForm.Meta.fields, "seconds") if obj is None else SHOWN

    def get_form(self, request: HttpRequest, obj: Pause | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form for this user."""
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        own = {"labels": self._labels(request), "actor": request.user.get_username()}
        form = type("PauseForm", (PauseForm,), own)
        return super().get_form(request, obj, change, **{**kwargs, "form": form, "fields": PauseForm.Meta.fields})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        """Return the pause that the form planned."""
        super().save_form(request, form, change)
        return form.planned

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save the pause, which workers obey from their next poll on."""
        keep_pause(obj, router.db_for_write(model_named(obj.model_label)))
