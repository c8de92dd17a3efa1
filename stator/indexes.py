"""The indexes that come with the mixin. Each names the statement it serves; all are partial."""

import hashlib
import re
from typing import Any

from django.db.models import Expression, F, Index, Q
from django.db.models.functions import Coalesce

from stator.meta import options_of


def place_in_line() -> Coalesce:
    """The order in which rows are claimed: since when they are due, or else since when they are in their state."""
    return Coalesce(F("state_next_attempt"), F("state_changed"))


def line_of(model: Any, *, by_age: bool = False) -> list[Expression | F]:
    """The order in which ready rows of a model are claimed, of each value of ``fair_by``; ``by_age``: now and then."""
    priority = options_of(model).priority
    first = [F(priority)] if priority and not by_age else []
    return [*first, place_in_line(), F(model._meta.pk.name)]


def line_of_all(model: Any, *, by_age: bool = False) -> list[Expression | F]:
    """As :func:`line_of`, one value of ``fair_by`` after the other."""
    fair_by = options_of(model).fair_by
    return [*([F(fair_by)] if fair_by else []), *line_of(model, by_age=by_age)]


def add_indexes(model: Any) -> None:
    """Give the model its indexes beside those it declares itself."""
    indexes = [*model._meta.indexes, *own_indexes(model)]
    model._meta.indexes = indexes
    # Migrations look at the declared options only.
    model._meta.original_attrs["indexes"] = indexes


def own_indexes(model: Any) -> list[Index]:
    """The indexes of a managed model, under names of their own."""
    table = model._meta.db_table
    readable = re.sub(r"[^a-z0-9]+", "_", table.lower())[:12].strip("_")
    suffix = f"{readable}_{hashlib.sha256(table.encode()).hexdigest()[:6]}"
    aged = [_aged(model, suffix)] if options_of(model).priority else []
    return [_ready(model, suffix), *aged, _resting(suffix), _leased(suffix), _crashed(suffix), _failing(model, suffix)]


def _ready(model: Any, suffix: str) -> Index:
    """CLAIM: the ready rows in the order of their turn; rows leave it when they are claimed."""
    return Index(*line_of_all(model), condition=Q(state_ready=True), name=f"st_ready_{suffix}")


def _aged(model: Any, suffix: str) -> Index:
    """CLAIM by age, where there are priorities: the ready rows in the order in which they came."""
    return Index(*line_of_all(model, by_age=True), condition=Q(state_ready=True), name=f"st_age_{suffix}")


def _resting(suffix: str) -> Index:
    """MARK READY, TIME OUT, DELETE: rows that nobody holds and that are not ready, by state and due time.

    Where nothing is due (external and terminal states) the due time is null, and rows are in the order in which
    they entered the state.
    """
    unheld = Q(state_ready=False, state_claim__isnull=True)
    return Index(fields=["state", "state_next_attempt", "state_changed"], condition=unheld, name=f"st_rest_{suffix}")


def _leased(suffix: str) -> Index:
    """REAP: the rows that are held, by the end of their lease."""
    return Index(fields=["state_locked_until"], condition=Q(state_claim__isnull=False), name=f"st_lease_{suffix}")


def _crashed(suffix: str) -> Index:
    """CLAIM of rows that lost leases, which are claimed apart, and the quarantine: nearly always empty."""
    return Index(fields=["state_crashes"], condition=Q(state_crashes__gt=0), name=f"st_crash_{suffix}")


def _failing(model: Any, suffix: str) -> Index:
    """Lists and counts of the rows whose latest attempt ended in an error; others never enter it.

    The errors come first, although the condition has them: SQLite joins two indexes for an OR only by a column of each.
    """
    failed = Q(state_failures__gt=0)
    return Index(fields=["state_failures", model._meta.pk.name], condition=failed, name=f"st_fail_{suffix}")
