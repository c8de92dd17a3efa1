"""The actions of operators on rows in the admin. ``bulk`` has batching, permissions, logging and messages."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse

from stator.admin.bulk import OTHERWISE, ActionSpec, action_of, ask_about, carry_out, permitted
from stator.admin.confirmation import ActionFunction
from stator.admin.confirmed_snapshot import confirmed_in
from stator.admin.fields import SPAN_HELP, SpanField
from stator.admin.listing import AnyAddressAdmin
from stator.graph import State, StateGraph
from stator.models import StatorModel
from stator.rows.meta import graph_of
from stator.rows.records import REASON_LENGTH
from stator.rows.state_column import state_field
from stator.rows.transitions import kept_states
from stator.rows.unlocks import HOLDS, holders_of, unlock_and_hold

# The beginning of the name of the button that holds unlocked rows as well.
HOLDING = "stator_and_"

WORDS = (
    "may still be attempted, and unlocking does not stop a handler that runs in a thread. Its worker learns of it at "
    "the next heartbeat, within a third of the lease: it then cancels an asynchronous handler. Whatever the handlers "
    "return is not recorded. Without a pause a worker may claim the object at once, beside the attempt that runs."
)


class ReasonForm(forms.Form):
    """The reason, which is asked for before an action."""

    reason = forms.CharField(max_length=REASON_LENGTH, required=False, widget=forms.TextInput(attrs={"size": 60}))


class StartOverForm(ReasonForm):
    """The reason, and whether objects that return to where they failed begin anew."""

    start_over = forms.BooleanField(
        required=False,
        label="Start over",
        help_text="Run recorded steps again, with new idempotency keys. Otherwise they go on where they failed.",
    )


class MoveForm(StartOverForm):
    """The target state, the reason, and whether objects begin anew."""

    state = forms.ChoiceField(label="Move to")
    field_order = ("state", "reason", "start_over")

    def __init__(self, graph: type[StateGraph], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not any(state.failure_state for state in graph.states.values()):
            del self.fields["start_over"]
        field: Any = self.fields["state"]
        names = [state.name for state in graph.states.values() if state.enter_by_hand]
        field.choices = [("", "---------"), *((name, name) for name in names)]
        field.error_messages["invalid_choice"] = (
            f"%(value)s is not a state to which objects can be moved by hand. Choose {' or '.join(names)}."
        )


def next_by_hand(state: State) -> list[str]:
    """Return the states that edges lead to from a state, and that people may move objects to."""
    return [each.name for each in state.graph.states.values() if each in state.children and each.enter_by_hand]


class PauseObjectsForm(ReasonForm):
    """The duration of a pause, and the reason."""

    seconds = SpanField(label="Pause for", required=False, help_text=f"{SPAN_HELP} Empty: until they are resumed.")
    field_order: Sequence[str] = ("seconds", "reason")


@admin.action(description="Retry now", permissions=["retry"])
def stator_retry(model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
    """Make the rows due now."""
    action = action_of(request, queryset.model, "retry")
    act = ActionSpec(
        "Retry now.", "are due now", lambda rows: rows.retry(action=action),
        "held by workers, or in states that workers do not attempt", makes_due=True, action=action,
    )  # fmt: skip
    return carry_out(model_admin, request, queryset, act)


@admin.action(description="Unlock", permissions=["retry"])
def stator_unlock(model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
    """End the claims on the rows; ask first if an attempt may still run."""
    snapshot = confirmed_in(request, queryset.model)
    form = ReasonForm(request.POST if snapshot else None)
    if not (snapshot and form.is_valid()):
        claimed = queryset.filter(state_claim__isnull=False)
        holders = holders_of(claimed)
        if any(holder.may_run for holder in holders):
            hold = next((each for each in HOLDS if claimed.order_by()[: each.most + 1].count() <= each.most), None)
            return ask_about(
                model_admin, request, permitted(model_admin, request, claimed, "retry"), form, title="Unlock",
                words=WORDS, button="Unlock", notes=holders, also=f"{HOLDING}{hold.name}" if hold else "",
                also_label=f"Unlock and {hold.name}" if hold else "",
            )  # fmt: skip
    reason = form.cleaned_data["reason"] if snapshot else ""
    held = next((each for each in HOLDS if f"{HOLDING}{each.name}" in request.POST), None)
    done = f"unlocked and {held.done}" if held else "unlocked"
    action = action_of(request, queryset.model, "unlock", reason)
    act = ActionSpec(
        f"{done.capitalize()}. {reason}".strip(),
        done,
        lambda rows: unlock_and_hold(rows, action, held) if held else rows.unlock(action=action),
        "not claimed",
        same_claim=True,
        action=action,
    )
    return carry_out(model_admin, request, queryset, act, snapshot)


@admin.action(description="Release from quarantine", permissions=["retry"])
def stator_release(
    model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]
) -> HttpResponse | None:
    """Make quarantined rows due now."""
    action = action_of(request, queryset.model, "retry")
    act = ActionSpec(
        "Released from quarantine.", "released from quarantine and due now",
        lambda rows: rows.quarantined().retry(action=action),
        "not in quarantine", makes_due=True, action=action,
    )  # fmt: skip
    return carry_out(model_admin, request, queryset, act)


@admin.action(description="Move to state\N{HORIZONTAL ELLIPSIS}", permissions=["move"])
def stator_move(model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
    """Ask for a state and a reason, then move the rows there."""
    graph, kept = graph_of(queryset.model), kept_states(queryset.model)
    left = state_field(queryset.model).among(kept)
    snapshot = confirmed_in(request, queryset.model)
    form = MoveForm(graph, request.POST) if snapshot else MoveForm(graph, initial={"state": request.POST.get("state")})
    skipped = [caution for cautions in CAUTIONS for caution in cautions(queryset)]
    form.fields["reason"].required = bool(skipped)
    if not (snapshot and form.is_valid()):
        words = "will be moved by hand, even if the graph has no such edge."
        rows = permitted(model_admin, request, queryset, "move").exclude(**left)
        return ask_about(
            model_admin, request, rows, form,
            title="Move to state", words=words, button="Move", says=skipped,
        )  # fmt: skip
    state, reason = form.cleaned_data["state"], form.cleaned_data["reason"]
    start_over = bool(form.cleaned_data.get("start_over"))
    action = action_of(request, queryset.model, "move", reason, moves=True)
    act = ActionSpec(
        f"Moved to {state} by hand{', to start over' * start_over}. {reason}".strip(), f"moved to {state}",
        lambda rows: rows.exclude(**left).move(state, action=action, start_over=start_over),
        f"in {' or '.join(kept)}, which no move by hand leaves, or {OTHERWISE}" if kept else OTHERWISE,
        permission="move", action=action,
    )  # fmt: skip
    return carry_out(model_admin, request, queryset, act, snapshot)


# Extensions put theirs before the moves.
ACTIONS: list[ActionFunction] = [stator_retry, stator_unlock, stator_release, stator_move]
# The permissions that a project may give for each object.
PERMISSIONS = ["change", "retry", "move"]

# What extensions add: actions of one model, and what a move by hand of some rows would skip, as sentences.
FURTHER: list[Callable[[type[StatorModel]], Iterable[ActionFunction]]] = []
CAUTIONS: list[Callable[[QuerySet[Model]], Iterable[str]]] = []
