"""The page that asks before an action of operators is undone."""

from functools import partial

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from stator.admin.actions import ReasonForm
from stator.admin.bulk import AT_ONCE, OTHERWISE, checked, next_part, progress_of
from stator.admin.confirmation import admin_url, ask, log, tell
from stator.admin.confirmed_snapshot import CONFIRMED, describe_changes
from stator.admin.control_characters import Shown
from stator.admin.listing import AnyAddressAdmin
from stator.extensions.undo.undoing import BATCH, UndoPart, undo
from stator.rows.actions import Action, recent_actions
from stator.rows.meta import M, owner_of

WORDS = (
    "Those that nobody has touched since get the state, attempts and due time that they had. The others are named and "
    "left alone. Claims that were ended do not come back."
)


def undo_view(model_admin: AnyAddressAdmin, request: HttpRequest, number: int) -> HttpResponse:
    """Ask for a reason, then undo the action, a limited number of objects for each request."""
    action = actions_on(model_admin).filter(pk=number).first()
    if action is None:
        why = f"Action {number} cannot be undone: it is of another model, unknown, or more than an hour old."
        model_admin.message_user(request, why, messages.ERROR)
        return _to_list(model_admin)
    if not may_undo(model_admin, request, action):
        raise PermissionDenied
    form = ReasonForm(request.POST if CONFIRMED in request.POST else None)
    if not form.is_valid():
        words = [f"{action.count:,} objects go back to what they were before this: {describe(action)}.", WORDS]
        return ask(model_admin, request, form, title="Undo", button="Undo", words=words, is_action=False)
    return _undo(model_admin, request, action, form.cleaned_data["reason"])


def describe(action: Action) -> str:
    """Return an action in a few words: what, who and why."""
    what = f"undo of action {action.undoes}" if action.undoes else action.kind
    return f"{what}{f' by {action.actor}' if action.actor else ''}{f' ({action.reason})' if action.reason else ''}"


def _undo(model_admin: AnyAddressAdmin, request: HttpRequest, action: Action, reason: str) -> HttpResponse:
    after, done_before, left_before, number = progress_of(request)
    mine = partial(_mine, model_admin, request, _permission(action))
    if not after:
        log(model_admin, request, [], f"Undid action {action.pk}. {reason}".strip())
    done = undo(
        action.pk, router.db_for_write(model_admin.model), actor=request.user.get_username(), reason=reason,
        part=UndoPart(AT_ONCE // BATCH, after, number, among=mine),
    )  # fmt: skip
    count, left = done.count + done_before, len(done.left) + done.unnamed + left_before
    if done.rest:
        act, given = {"done": "went back", "otherwise": "touched since"}, {"reason": reason, CONFIRMED: "1"}
        so_far = {"after": done.rest, "done": count, "left": left, "action": done.action.pk or 0}
        return next_part(model_admin, request, act, action.count, given, **so_far)
    was = "was" if left == 1 else "were"
    why = describe_changes([f"{key} {why}" for key, why in done.left.items()]).partition(": ")[2] or OTHERWISE
    tell(model_admin, request, count, "went back", f"{left:,} {was} left alone: {why}." if left else "")
    return _to_list(model_admin)


def _mine(model_admin: AnyAddressAdmin, request: HttpRequest, permission: str, rows: QuerySet[M]) -> QuerySet[M]:
    """Return the rows that the user sees and may change."""
    visible = model_admin.get_queryset(request).using(rows.db).filter(pk__in=list(rows.values_list("pk", flat=True)))
    differs = model_admin.differs_by_object
    pks = checked(model_admin, request, visible, permission) if differs else list(visible.values_list("pk", flat=True))
    return rows.filter(pk__in=pks)


def actions_on(model_admin: admin.ModelAdmin) -> QuerySet[Action]:
    """Return the actions of the last hour on objects of the model, the latest first."""
    owner = owner_of(model_admin.model)
    return recent_actions(router.db_for_write(owner)).filter(model_label=owner._meta.label_lower)


def may_undo(model_admin: admin.ModelAdmin, request: HttpRequest, action: Action) -> bool:
    """Return whether the user has the permission that the action needed."""
    return bool(getattr(model_admin, f"has_{_permission(action)}_permission")(request))


def _permission(action: Action) -> str:
    """Return the permission that the action needed."""
    return "move" if action.moves and action.kind in ("move", "undo") else "retry"


def _to_list(model_admin: AnyAddressAdmin) -> HttpResponse:
    return HttpResponseRedirect(admin_url(model_admin, "changelist"))


class HasUndoPage(AnyAddressAdmin[Shown]):
    """The admin of a managed model with the page on which an action is undone."""

    def get_urls(self) -> list[URLPattern]:
        """Return the URL of the page, and all others."""
        page = path(
            "stator/undo/<int:number>/",
            self.admin_site.admin_view(partial(undo_view, self)),
            name=f"{self.opts.app_label}_{self.opts.model_name}_stator_undo",
        )
        return [page, *super().get_urls()]
