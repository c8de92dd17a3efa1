"""Pauses in the admin: users who may retry objects of a model may pause and resume them."""

import json
from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router
from django.db.models import BooleanField, Case, Model, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from stator.admin import actions, detail, listing
from stator.admin.access import Pages
from stator.admin.actions import PauseObjectsForm
from stator.admin.bulk import ActionSpec, action_of, ask_about, carry_out, permitted
from stator.admin.confirmation import ActionFunction, admin_url, back, refuse
from stator.admin.confirmed_snapshot import confirmed_in
from stator.admin.fields import SPAN_HELP, JSONField, SpanField
from stator.admin.listing import AnyAddressAdmin
from stator.admin.read_only import KeptAdmin
from stator.extensions.pauses.models import (
    MAX_OBJECTS,
    NAMED,
    Pause,
    end_chosen,
    in_force,
    is_paused_by_name,
    keep_pause,
    pause_objects,
    planned_pause,
    resume_objects,
)
from stator.models import StatorModel
from stator.rows.actions import Action
from stator.rows.meta import home_of, model_named, model_of, owner_of, written_to
from stator.rows.problem import Problem
from stator.rows.state_column import state_of
from stator.texts import counted, escape

# Pauses that are shown above a list.
NOTICED = 3

# The model of a pause, which the button to end it sends: the pause is in that model's database.
OF_MODEL = "stator_of"

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
        if (model := model_of(request.POST.get(OF_MODEL, ""))) is not None and issubclass(model, StatorModel):
            rows = rows.using(router.db_for_write(model))
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

    def get_form(self, request: HttpRequest, obj: Pause | None = None, change: bool = False, **kwargs: object) -> Any:
        """Return the form for this user."""
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        own = {"labels": self._labels(request), "actor": request.user.get_username()}
        form = type("PauseForm", (PauseForm,), own)
        return super().get_form(request, obj, change, **{**kwargs, "form": form, "fields": PauseForm.Meta.fields})

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Pause:
        """Return the pause that the form planned."""
        super().save_form(request, form, change)
        return form.planned

    def save_model(self, request: HttpRequest, obj: Pause, form: object, change: bool) -> None:
        """Save the pause, which workers obey from their next poll on."""
        keep_pause(obj, router.db_for_write(model_named(obj.model_label)))

    def response_add(self, request: HttpRequest, obj: Pause, post_url_continue: str | None = None) -> HttpResponse:
        """Say where the pause is if it is in another database than this list, with the objects of its model."""
        if obj._state.db == router.db_for_write(Pause):
            return super().response_add(request, obj, post_url_continue)
        label = model_named(obj.model_label)._meta.label
        words = (
            f"Paused in database {obj._state.db!r}, which this list does not show; resume it on the list of {label}."
        )
        self.message_user(request, words, messages.WARNING)
        return self.response_post_save_add(request, obj)


# On the lists and pages of managed models


@admin.action(description="Pause\N{HORIZONTAL ELLIPSIS}", permissions=["retry"])
def stator_pause(model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
    """Ask for a duration and a reason, then pause the rows."""
    pks = list(queryset.order_by("pk").values_list("pk", flat=True)[: MAX_OBJECTS + 1])
    if len(pks) > MAX_OBJECTS:
        words = f"At most {MAX_OBJECTS} objects can be paused at once. For more, pause a state or the model."
        return refuse(model_admin, request, words)
    rows = permitted(model_admin, request, queryset.filter(pk__in=pks), "retry")
    snapshot = confirmed_in(request, queryset.model)
    form = PauseObjectsForm(request.POST if snapshot else None)
    if not (snapshot and form.is_valid()):
        words = "will not be attempted by workers. Running attempts may finish; timeouts and moves by hand go on."
        return ask_about(model_admin, request, rows, form, title="Pause", words=words, button="Pause")
    reason, seconds = form.cleaned_data["reason"], form.cleaned_data["seconds"]
    action = action_of(request, queryset.model, "pause", reason)
    act = ActionSpec(f"Paused. {reason}".strip(), "paused", lambda rows: _pause(rows, action, seconds))
    return carry_out(model_admin, request, rows, act, snapshot)


def _pause(rows: QuerySet[Model], action: Action, seconds: float | None) -> int:
    if pks := list(rows.values_list("pk", flat=True)):
        pause_objects(rows.model, written_to(rows), pks, action, seconds)
    return len(pks)


@admin.action(description="Resume", permissions=["retry"])
def stator_resume(model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
    """End the pauses of single rows."""
    actor = request.user.get_username()
    act = ActionSpec(
        "Resumed.", "resumed",
        lambda rows: resume_objects(rows.model, written_to(rows), rows.values_list("pk", flat=True), actor=actor),
        "not paused by themselves; end pauses of the model and of states under Pauses",
    )  # fmt: skip
    return carry_out(model_admin, request, queryset, act)


def may_end(site: admin.AdminSite, request: HttpRequest, model: type[StatorModel]) -> bool:
    """Return whether the user may end pauses of the model under Pauses."""
    pages = Pages(site, request)
    return pages.may_retry(model) and pages.may_act(Pause, "stator_end")


def notices(model_admin: admin.ModelAdmin, request: HttpRequest) -> Iterator[SafeString]:
    """Yield the pauses of the model above its list, with a button to end each."""
    owner = owner_of(model_admin.model)
    pauses = Pause.objects.using(router.db_for_write(owner)).active().filter(model_label=owner._meta.label_lower)
    shown = list(pauses.order_by("-pk")[:NOTICED])
    values = {
        "may_resume": bool(shown) and may_end(model_admin.admin_site, request, model_admin.model),
        "begun_at": request.get_full_path(),
    }
    for pause in shown:
        yield render_to_string("stator/admin/pause_notice.html", {"pause": pause, **values}, request)


def forms_to_end(
    model_admin: admin.ModelAdmin, request: HttpRequest, row: StatorModel, reasons: list[Problem]
) -> Iterator[SafeString]:
    """Yield buttons to end the pauses of its model and state that hold a row, if the user may."""
    pks = [reason.numbers["pause"] for reason in reasons if reason.code == "paused"]
    if pks and may_end(model_admin.admin_site, request, owner_of(type(row))):
        values = {"begun_at": admin_url(model_admin, "change", quote(str(row.pk)))}
        for pause in Pause.objects.using(home_of(row)).filter(pk__in=pks):
            if NAMED not in pause.where:
                yield render_to_string("stator/admin/end_pause.html", {"pause": pause, **values}, request)


def useful(row: StatorModel) -> dict[ActionFunction, bool]:
    """Return whether the actions would change something of a row now."""
    state, paused = state_of(row), is_paused_by_name(type(row), home_of(row), row.pk)
    return {stator_pause: state is not None and state.automatic and not paused, stator_resume: paused}


at = actions.ACTIONS.index(actions.stator_move)
actions.ACTIONS[at:at] = [stator_pause, stator_resume]
detail.USEFUL.append(useful)
detail.FORMS.append(forms_to_end)
listing.NOTICES.append(notices)
