"""Actions on many rows: one part per request, with permissions, logs, and counts of changed and unchanged rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django import forms
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db import router
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from stator.admin.confirmation import SHOWN, ask, back, context_of, log, noun_of, refuse, tell
from stator.admin.confirmed_snapshot import CONFIRMED, FIELD, Snapshot, describe_changes, see
from stator.admin.listing import COUNTED, AnyAddressAdmin, AtLeast, bounded_count, operated
from stator.querysets import OperatorQuerySet
from stator.rows.actions import Action, recent_actions
from stator.rows.due_times import looked_at
from stator.rows.readings import read
from stator.rows.state_column import state_name
from stator.texts import escape

# Rows of one request; more would take longer than servers and people wait for an answer.
AT_ONCE = 5000
# The fields of a confirmation page that are sent again for the next part.
GIVEN = ("state", "reason", "start_over", CONFIRMED, FIELD)


# Why rows are left alone if an action gives no other reason.
OTHERWISE = "deleted or changed meanwhile, or you lack the permission"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action: its log text, its success text, its function, and why some rows are left alone.

    ``permission``: what it needs for each row. ``same_claim``: if it was confirmed, rows that were claimed anew since
    are left alone too. ``makes_due``: the message also says what keeps the rows from their attempt. ``action``: in
    all parts the same. ``refused``: makes the page that says why nothing was done from the reason.
    """

    logged: str
    done: str
    write: Callable[[OperatorQuerySet[Model]], int]
    otherwise: str = OTHERWISE
    permission: str = "retry"
    same_claim: bool = False
    makes_due: bool = False
    action: Action | None = None
    refused: Callable[[str], HttpResponse] | None = None


class ProgressForm(forms.Form):
    """The progress of an action on all rows of a filter, carried by the page between two parts.

    ``stator_after``: the last key of the parts so far. ``stator_done``, ``stator_left``: how many rows were changed and
    left alone. ``stator_action``: the number of the action.
    """

    stator_after = forms.CharField(required=False, strip=False)
    stator_done = forms.IntegerField(required=False, min_value=0)
    stator_left = forms.IntegerField(required=False, min_value=0)
    stator_action = forms.IntegerField(required=False, min_value=0)


def action_of(request: HttpRequest, model: type[Model], kind: str, reason: str = "", *, moves: bool = False) -> Action:
    """Return the action that the user's request is about: a new one, or one whose next part is done now."""
    actor = request.user.get_username()
    *_, number = progress_of(request)
    new = Action.of(model, kind, actor, reason, moves=moves)
    mine = recent_actions(router.db_for_write(model)).filter(model_label=new.model_label, kind=kind, actor=new.actor)
    return (mine.filter(pk=number).first() if number else None) or new


def carry_out(
    model_admin: AnyAddressAdmin,
    request: HttpRequest,
    rows: QuerySet[Model],
    act: ActionSpec,
    snapshot: Snapshot | None = None,
) -> HttpResponse | None:
    """Act on the rows, or on the next part of all rows that a filter finds; show a message at the end.

    ``snapshot``: what a confirmation page showed; rows that have changed since are left alone.
    """
    across = request.POST.get("select_across") == "1"
    after, done_before, left_before, _ = progress_of(request)
    part, last = _part(rows, after) if across else (rows, None)
    chosen = part.order_by()[: AT_ONCE + 1].count()
    changes = []
    if snapshot is not None:
        if last is None:
            changes = snapshot.changes(model_admin.get_queryset(request), same_claim=act.same_claim)
        part = snapshot.unchanged(part, same_claim=act.same_claim)
    part = permitted(model_admin, request, part, act.permission)
    if not after:
        log(model_admin, request, part, act.logged)
    looked = looked_at(part) if act.makes_due else []
    try:
        done = act.write(operated(part))
    except ValueError as error:
        if act.refused:
            return act.refused(str(error))
        # Django's pages begin each message with a capital letter, which would change a name.
        return refuse(model_admin, request, f"Nothing was done: {error}")
    left = left_before + max(0, chosen - done)
    done += done_before
    if last is not None:
        return _go_on(model_admin, request, rows, act, last, done, left)
    if snapshot is not None and snapshot.rows is not None:
        # Rows that a filter no longer finds are left alone too.
        left = max(left, len(snapshot.rows) - done)
    kept = escape(read("prospects", rows.db, rows, looked, done, otherwise="")) if looked else ""
    words = f"{_left_alone(model_admin, act, left, changes)} {kept}".strip()
    tell(model_admin, request, done, _of_number(act.done, done), words)
    return back(model_admin, request)


def permitted(
    model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model], permission: str
) -> QuerySet[Model]:
    """Return the rows that the user has the permission for; checks each only if the project's admin overrides it."""
    if not model_admin.differs_by_object:
        return queryset
    pks = checked(model_admin, request, queryset, permission)
    if not pks and request.POST.get("select_across") != "1":
        raise PermissionDenied
    return model_admin.get_queryset(request).filter(pk__in=pks)


def checked(
    model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model], permission: str
) -> list[object]:
    """Check the permission for each of as many rows as a request takes; return the keys of the permitted rows."""
    may = getattr(model_admin, f"has_{permission}_permission")
    return [row.pk for row in islice(queryset.iterator(chunk_size=1000), AT_ONCE) if may(request, row)]


def ask_about(
    model_admin: AnyAddressAdmin,
    request: HttpRequest,
    rows: QuerySet[Model],
    form: forms.Form,
    *,
    words: str,
    button: str,
    says: Sequence[str] = (),
    notes: Sequence[object] = (),
    **further: Any,
) -> HttpResponse:
    """Return the confirmation page of an action on managed rows, with their states and how many are being attempted.

    ``words``: what happens to the rows, as the end of a sentence; ``says``: further sentences.
    ``notes``: who holds them, if the page is about that.
    """
    snapshot = see(rows, COUNTED)
    total = AtLeast(COUNTED) if snapshot.total > COUNTED else snapshot.total
    warning = ""
    if not notes and (running := bounded_count(operated(rows).leased())):
        warning = f"{running:,} of them {'is' if running == 1 else 'are'} being attempted at the moment"
        warning += "; the outcomes of these attempts will not be recorded." if button == "Move" else "."
    return ask(
        model_admin, request, form, button=button,
        words=[f"{total:,} {noun_of(model_admin, snapshot.total)} {words}", *says],
        warning=warning, rows=_named(rows), snapshot=snapshot, notes=notes,
        states=[(state, f"{count:,}") for state, count in sorted(snapshot.counts.items(), key=lambda one: -one[1])],
        **further,
    )  # fmt: skip


def _named(rows: QuerySet[Model]) -> Iterator[str]:
    return (f"{row} ({state_name(row)})" for row in rows[: SHOWN + 1])


def progress_of(request: HttpRequest) -> tuple[str, int, int, int]:
    """Return the last key, the numbers of changed and unchanged rows, and the number of the action so far."""
    form = ProgressForm(request.POST)
    if not form.is_valid():
        raise BadRequest("the progress of the action is not a number")
    given = form.cleaned_data
    numbers = (given[name] or 0 for name in ("stator_done", "stator_left", "stator_action"))
    return (given["stator_after"], *numbers)


def _part(queryset: QuerySet[Model], after: str) -> tuple[QuerySet[Model], object]:
    """Return the rows of the next part, and its last key if more follow."""
    rows = queryset.order_by("pk")
    if after:
        pk = queryset.model._meta.pk
        try:
            rows = rows.filter(pk__gt=getattr(pk, "target_field", pk).to_python(after))
        except ValidationError as error:
            raise BadRequest("the action cannot go on: its last key is not a key") from error
    ends = list(rows.values_list("pk", flat=True).distinct()[AT_ONCE - 1 : AT_ONCE + 1])
    return (rows.filter(pk__lte=ends[0]), ends[0]) if len(ends) == 2 else (rows, None)


def _go_on(
    model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model], act: ActionSpec,
    after: object, done: int, left: int,
) -> HttpResponse:  # fmt: skip
    # Changed rows may no longer match the filter.
    rest = bounded_count(queryset.filter(pk__gt=after))
    total = AtLeast(done + left + rest) if isinstance(rest, AtLeast) else done + left + rest
    given = {name: request.POST[name] for name in GIVEN if name in request.POST}
    number = act.action.pk or "" if act.action else ""
    return next_part(model_admin, request, act, total, given, after=after, done=done, left=left, action=number)


def next_part(
    model_admin: AnyAddressAdmin, request: HttpRequest, act: object, total: int, given: dict[str, str],
    **progress: object,
) -> HttpResponse:  # fmt: skip
    """Return the page that says how far an action is, and sends itself for the next part."""
    context = {
        **context_of(model_admin, request),
        "title": "In progress",
        "act": act,
        "total": f"{total:,}",
        "progress": {f"stator_{name}": value for name, value in progress.items()},
        "done": f"{progress['done']:,}",
        "left": f"{progress['left']:,}" if progress["left"] else "",
        "given": given,
    }
    return TemplateResponse(request, "stator/admin/progress.html", context)


def _left_alone(model_admin: AnyAddressAdmin, act: ActionSpec, left: int, changes: list[str]) -> str:
    """Return how many rows were not changed, and why; "" if all were."""
    if not left:
        return ""
    was, why = "was" if left == 1 else "were", describe_changes(changes) or act.otherwise
    return f"{left:,} {noun_of(model_admin, left)} {was} not changed ({why})."


def _of_number(words: str, count: int) -> str:
    """Return the words for one or for many."""
    return words.replace("are ", "is ", 1) if count == 1 and words.startswith("are ") else words
