"""Which columns each event in the life of a row changes. The only place that knows; all times are the database's."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Expression, F, Q, Value, When
from django.db.models.functions import Now

from stator.graph import State

FRAMEWORK_COLUMNS = frozenset(
    {
        "state_ready",
        "state_changed",
        "state_attempted",
        "state_locked_until",
        "state_next_attempt",
        "state_attempts",
        "state_failures",
        "state_crashes",
        "state_version",
        "state_claim",
    }
)

Changes = dict[str, Any]

_UNCLAIMED: Changes = {"state_claim": None, "state_locked_until": None}


def ready_at_once(state: State) -> bool:
    """Whether a row that enters ``state`` may be attempted right away."""
    return state.automatic and state.attempt_immediately


def first_attempt(state: State) -> Expression | None:
    """When a row that enters ``state`` is due; None for now, or for never where nothing attempts it."""
    if not state.automatic or state.attempt_immediately:
        return None
    return after(state.try_interval or 0)


def after(seconds: float) -> Expression:
    """The moment so many seconds from now, by the clock of the database."""
    return Now() + timedelta(seconds=seconds)


def come_due() -> Q:
    """Rows whose due time has passed; null is now."""
    return Q(state_next_attempt__lte=Now()) | Q(state_next_attempt=None)


def entering(state: State) -> Changes:
    """A row goes into a state, by an attempt, a timeout or by hand; any claim on it ends."""
    return {
        "state": state.name,
        "state_changed": Now(),
        "state_attempted": None,
        "state_ready": ready_at_once(state),
        "state_next_attempt": first_attempt(state),
        "state_attempts": 0,
        "state_failures": 0,
        "state_crashes": 0,
        "state_version": F("state_version") + 1,
        **_UNCLAIMED,
    }


def claiming(token: UUID, until: Any) -> Changes:
    """A row is claimed: the attempt is counted and its time noted."""
    return {
        "state_claim": token,
        "state_locked_until": until,
        "state_ready": False,
        "state_attempted": Now(),
        "state_attempts": F("state_attempts") + 1,
    }


def staying(due: Any, failures: Any) -> Changes:
    """An attempt ended and the row stays; having ended at all it clears the count of crashes."""
    return {
        "state_ready": False,
        "state_next_attempt": due,
        "state_failures": failures,
        "state_crashes": 0,
        **_UNCLAIMED,
    }


def releasing() -> Changes:
    """A claimed row is handed back without an attempt; it keeps its place in line."""
    return {"state_ready": True, "state_attempts": F("state_attempts") - 1, **_UNCLAIMED}


def reaping(max_crashes: int) -> Changes:
    """A lease ran out: the crash is counted, and at ``max_crashes`` the row is left in quarantine."""
    goes_on = Q(state_crashes__lt=max_crashes - 1)
    return {
        "state_crashes": F("state_crashes") + 1,
        "state_ready": Case(When(goes_on, then=Value(True)), default=Value(False)),
        "state_next_attempt": None,
        **_UNCLAIMED,
    }


def retrying() -> Changes:
    """An operator wants the row attempted now, with a clean record."""
    return {"state_ready": True, "state_next_attempt": None, "state_failures": 0, "state_crashes": 0}


def unlocking() -> Changes:
    """An operator ends the claim of a row; the attempt that held it can write nothing more."""
    return {"state_ready": True, "state_next_attempt": None, **_UNCLAIMED}
