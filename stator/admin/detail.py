"""The live part of one row's page: why it does not move, possible actions, its history, and the graph."""

from collections.abc import Callable, Iterable
from datetime import datetime

from django.contrib.admin import ModelAdmin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.safestring import SafeString

from stator.admin import actions, row_summary
from stator.admin.confirmation import ActionFunction
from stator.admin.links import ways_of
from stator.admin.timeline import LATEST, timeline_of
from stator.conf import read_settings
from stator.models import StatorModel
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.clock import moment_text
from stator.rows.meta import home_of, option_of, owner_of
from stator.rows.problem import Problem
from stator.rows.readings import read
from stator.rows.state_column import state_name, state_of

# Seconds between refreshes by the script.
EVERY = 2

# What extensions add: whether their actions would change something of a row now, and further forms of a row's page,
# before the moves by hand and after them.
USEFUL: list[Callable[[StatorModel], dict[ActionFunction, bool]]] = []
Forms = Callable[[ModelAdmin, HttpRequest, StatorModel, list[Problem]], Iterable[SafeString]]
FIRST_FORMS: list[Forms] = []
# And what they show of where a row is, given its moves, the latest first.
Moves = list[tuple[str, str]]
DRAWN: list[Callable[[ModelAdmin, HttpRequest, StatorModel, list[Problem], Moves], Iterable[SafeString]]] = []
FORMS: list[Forms] = []


def context_of(model_admin: ModelAdmin, request: HttpRequest, row: StatorModel) -> dict[str, object]:
    """Return what the template shows of the row to this user."""
    past = timeline_of(row)
    reasons, is_alarming = read("reasons", home_of(row), row, otherwise=([], False))
    return {
        "original": row,
        "opts": model_admin.opts,
        "stator_every": EVERY,
        "stator_reasons": reasons,
        "stator_explained": [(each, ways_of(model_admin.admin_site, type(row), each)) for each in reasons],
        "stator_trouble": is_alarming,
        "stator_first": [form for forms in FIRST_FORMS for form in forms(model_admin, request, row, reasons)],
        "stator_further": [form for forms in FORMS for form in forms(model_admin, request, row, reasons)],
        "stator_state": state_name(row),
        "stator_standing": row_summary.situation(row).kind,
        "stator_age": row_summary.age(row),
        "stator_late": row_summary.expected_within(row),
        "stator_facts": _facts(row),
        "stator_progress": next((each for each in row_summary.progress([row]).values()), None),
        "stator_columns": [(name, _written(getattr(row, name))) for name in sorted(FRAMEWORK_COLUMNS)],
        "stator_acts": _acts_on(model_admin, request, row),
        "stator_moves": _moves_of(model_admin, request, row),
        "stator_timeline": past.events,
        "stator_latest": LATEST,
        "stator_keeps_history": option_of(owner_of(type(row)), "history") is not False,
        "stator_tracebacks": request.user.has_perm("stator.view_report"),
        "stator_drawn": [part for parts in DRAWN for part in parts(model_admin, request, row, reasons, past.moves)],
    }


def _facts(row: StatorModel) -> list[tuple[str, object]]:
    failures = f"{row.state_failures} in a row" if row.state_failures else "none"
    crashes = f"{row.state_crashes} of {read_settings()[0].MAX_CRASHES}"
    return [
        ("Next attempt", row_summary.situation(row).next),
        ("Attempts here", row.state_attempts),
        ("Errors", failures),
        *([("Leases lost", crashes)] if row.state_crashes else []),
        ("Held by", row_summary.lease(row)),
        ("Moves so far", row.state_version),
    ]


def _written(value: object) -> str:
    """Return the value of a column as text, times as everywhere."""
    if isinstance(value, datetime):
        return moment_text(value)
    return row_summary.NONE if value is None else str(value)


def _acts_on(model_admin: ModelAdmin, request: HttpRequest, row: StatorModel) -> list[dict[str, str]]:
    """Return the actions that would change something now and that the user may do."""
    state = state_of(row)
    automatic, free = state is not None and state.automatic, row.state_claim is None
    quarantined = automatic and row_summary.is_quarantined(row)
    useful: dict[ActionFunction, bool] = {
        actions.stator_retry: automatic and free and not quarantined,
        actions.stator_release: quarantined and free,
        actions.stator_unlock: not free,
    }
    for further in USEFUL:
        useful |= further(row)
    return offered(model_admin, request, row, (act for act, is_useful in useful.items() if is_useful))


def offered(
    model_admin: ModelAdmin, request: HttpRequest, row: Model, useful: Iterable[ActionFunction]
) -> list[dict[str, str]]:
    """Return the actions that the user may do, as buttons of the page."""
    acts = [act for act in useful if may(model_admin, request, row, act)]
    return [{"name": act.__name__, "label": str(getattr(act, "short_description", act.__name__))} for act in acts]


def _moves_of(model_admin: ModelAdmin, request: HttpRequest, row: StatorModel) -> list[str]:
    """Return the states that the graph leads to and people may move objects to, then an empty one for other states.

    Return none if the user may not move the row, or nobody may.
    """
    if not may(model_admin, request, row, actions.stator_move):
        return []
    state = state_of(row)
    if state is not None and not state.leave_by_hand:
        return []
    return [*(actions.next_by_hand(state) if state else ()), ""]


def may(model_admin: ModelAdmin, request: HttpRequest, row: Model, act: ActionFunction) -> bool:
    """Return whether the user may do this to the row."""
    if model_admin.actions is None or not model_admin.has_view_or_change_permission(request, row):
        return False
    needed = getattr(act, "allowed_permissions", ())
    return all(getattr(model_admin, f"has_{name}_permission")(request, row) for name in needed)
