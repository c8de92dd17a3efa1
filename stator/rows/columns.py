"""The columns that each event in the life of a row changes. Nothing else decides this; all times are the database's."""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from django.db.models import Case, Expression, F, Q, Value, When
from django.db.models.lookups import LessThanOrEqual

from stator.graph.states import State
from stator.rows.beginning import UNCLAIMED
from stator.rows.clock import Elapsed, Now
from stator.rows.dates import due_since, not_yet, start_of
from stator.rows.life import Changes, continued, visit_of_move
from stator.rows.state_column import StateField


def ready_at_once(state: State) -> bool:
    """Return whether a row that enters ``state`` may be attempted right away."""
    return state.automatic and state.attempt_immediately


def first_attempt(state: State) -> Expression | None:
    """Return when a row that enters ``state`` is due; None for now, or for never if nothing attempts it."""
    if not state.automatic or state.attempt_immediately:
        return None
    return after(state.try_interval or 0)


def after(seconds: float) -> Expression:
    """Return the time ``seconds`` from now, by the database's clock."""
    return Now() + timedelta(seconds=seconds)


def _ready_on_entering(field: StateField, state: State) -> bool | Q:
    at_once, start = ready_at_once(state), start_of(field.model, state)
    # No CASE: with the time and a column in it, Citus takes one only for rows that are all on one node.
    return start.come(Now()) if at_once and start else at_once


def marking_ready(field: StateField) -> Changes:
    """Return the changes when the due time of a row has come; a date of the row that is ahead decides from now on."""
    early = not_yet(field.model, Now())
    if not early:
        return {"state_ready": True}
    return {
        "state_ready": Case(When(early, then=Value(False)), default=Value(True)),
        # Its place in line.
        "state_next_attempt": Case(When(early, then=Value(None)), default=due_since(field.model)),
    }


def stayed() -> Expression:
    """Return how long rows have been in their state, by the database's clock."""
    return Elapsed(F("state_changed"))


def entering(field: StateField, state: State, sources: Collection[str] = (), *, start_over: bool = False) -> Changes:
    """Return the changes when a row enters a state by an attempt, a timeout or by hand; any claim on it ends.

    ``field``: of the model. ``sources``: the states that rows leave. ``start_over``: the visit that failed is not
    continued.
    """
    return {
        **visit_of_move(field, state, sources, start_over=start_over),
        **field.at(state),
        "state_changed": Now(),
        "state_attempted": None,
        "state_ready": _ready_on_entering(field, state),
        "state_next_attempt": first_attempt(state),
        "state_attempts": 0,
        "state_failures": 0,
        "state_crashes": 0,
        "state_version": F("state_version") + 1,
        **UNCLAIMED,
    }


def renaming(field: StateField, state: State) -> Changes:
    """Return the changes when a row gets the new name of its state: attempts, failures, times and the visit stay.

    A row that nothing attempts is not ready, should the state have become external or terminal.
    """
    rested: Changes = {} if state.automatic else {"state_ready": False}
    return {**continued(1), **rested, **field.at(state), "state_version": F("state_version") + 1}


def claiming(token: UUID | Expression, until: object) -> Changes:
    """Return the changes when a row is claimed: the attempt is counted and its time noted."""
    return {
        "state_claim": token,
        "state_locked_until": until,
        "state_ready": False,
        "state_attempted": Now(),
        "state_attempts": F("state_attempts") + 1,
    }


def claiming_due(field: StateField, token: UUID | Expression, until: object) -> Changes:
    """Return the changes of :func:`claiming`; a row that was marked ready before it is due only loses the mark.

    The test is in the SET list, where it costs nothing: the index of ready rows could not serve it as a condition.
    """
    kept = {
        "state_claim": Value(None),
        "state_locked_until": Value(None),
        "state_attempted": F("state_attempted"),
        "state_attempts": F("state_attempts"),
    }
    early = Q(state_next_attempt__gt=Now()) | not_yet(field.model, Now())
    return {
        name: Case(When(early, then=kept[name]), default=value) if name in kept else value
        for name, value in claiming(token, until).items()
    }


def staying(due: object, failures: object, *, woken: bool = False) -> Changes:
    """Return the changes when an attempt ends and the row stays; an attempt that ends resets the crash count.

    ``woken``: a held row that is marked ready got an event during the attempt, so it stays ready.
    """
    when: Changes = {"state_ready": False, "state_next_attempt": due}
    if woken:
        when = {"state_next_attempt": Case(When(state_ready=True, then=Value(None)), default=due)}
    return {
        **when,
        "state_failures": failures,
        "state_crashes": 0,
        **UNCLAIMED,
    }


def releasing(delay: float = 0.0, *, begun: bool = False) -> Changes:
    """Return the changes when a claim is released: the row keeps its place in line, or is due in ``delay`` seconds.

    ``begun``: the handler had begun, so the attempt stays counted.
    """
    ready = {"state_ready": False, "state_next_attempt": after(delay)} if delay else {"state_ready": True}
    return {**ready, "state_attempts": F("state_attempts") - (0 if begun else 1), **UNCLAIMED}


def reaping(max_crashes: int, spared: Q) -> Changes:
    """Return the changes when a lease runs out: a crash is counted, and ``max_crashes`` of them mean quarantine.

    ``spared``: a filter for rows without quarantine; their crash count stops at the last value that keeps them
    claimable.
    """
    goes_on = Q(state_crashes__lt=max_crashes - 1) | spared
    most = Q(spared, state_crashes__gte=max_crashes - 1)
    return {
        # Before the count that it reads: MySQL assigns from left to right, so later expressions see the new values.
        "state_ready": Case(When(goes_on, then=Value(True)), default=Value(False)),
        "state_crashes": Case(When(most, then=Value(max_crashes - 1)), default=F("state_crashes") + 1),
        "state_next_attempt": None,
        **UNCLAIMED,
    }


def waking() -> Changes:
    """Return the changes when what a row waited for is there; its turn counts from when it entered its state.

    A claim goes on. The mark stays on the held row, so one more attempt follows the present one: see :func:`staying`.
    """
    return {"state_ready": True, "state_next_attempt": None}


def retrying(apart: int) -> Changes:
    """Return the changes when an operator wants the row attempted now, with errors and crashes reset.

    A row with ``apart`` crashes or more keeps so many: it is attempted in a process of its own until an attempt ends.
    """
    crashes = Case(When(state_crashes__gte=apart, then=Value(apart)), default=Value(0)) if apart else 0
    return {"state_ready": True, "state_next_attempt": None, "state_failures": 0, "state_crashes": crashes}


def rescheduling(moment: Expression) -> Changes:
    """Return the changes when a waiting row is to be due at another time; one that has passed makes it ready."""
    ready = Case(When(LessThanOrEqual(moment, Now()), then=Value(True)), default=Value(False))
    return {"state_ready": ready, "state_next_attempt": moment}


def unlocking() -> Changes:
    """Return the changes when an operator ends a claim; the attempt that held it can write nothing more."""
    return {"state_ready": True, "state_next_attempt": None, **UNCLAIMED}
