"""The buttons that undo actions of operators, for an hour, above the list of the model."""

from collections.abc import Iterator

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from stator.admin import listing
from stator.admin.confirmation import admin_url
from stator.admin.row_summary import seconds_since
from stator.extensions.undo.admin.pages import actions_on, describe, may_undo
from stator.graph.durations import span

# Actions that are offered above a list.
OFFERED = 3


def notices(model_admin: admin.ModelAdmin, request: HttpRequest) -> Iterator[SafeString]:
    """Yield a button for each of the latest actions on objects of the model that the user may undo."""
    latest = list(actions_on(model_admin)[: 2 * OFFERED])
    undone = {action.undoes for action in latest}
    open_to_user = (each for each in latest if each.pk not in undone and may_undo(model_admin, request, each))
    for _, action in zip(range(OFFERED), open_to_user, strict=False):
        values = {
            "action": action, "words": describe(action), "ago": span(seconds_since(action.at)),
            "url": admin_url(model_admin, "stator_undo", action.pk), "opts": model_admin.opts,
        }  # fmt: skip
        yield render_to_string("stator/admin/undo_notice.html", values, request)


listing.NOTICES.append(notices)
