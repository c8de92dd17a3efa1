"""Reasons why one object is not moving, as sentences for people and numbers for programs."""

from dataclasses import replace
from typing import Any

from stator.explain.facts import gather
from stator.explain.reason import Reason
from stator.explain.remedies import REMEDIES
from stator.explain.standing import external, leased, paused, quarantined, terminal, unknown_state
from stator.explain.waiting import at_limit, backoff, crashed, in_line, last_said, no_worker, not_due, waits_for

# The most decisive first.
ORDER = (
    terminal,
    unknown_state,
    leased,
    quarantined,
    paused,
    external,
    waits_for,
    backoff,
    last_said,
    not_due,
    no_worker,
    crashed,
    at_limit,
    in_line,
)


def explain(model: Any, pk: Any, using: str | None = None) -> list[Reason]:
    """Return the reasons why an object is not moving, the most decisive first; never empty, at most five statements."""
    facts = gather(model, pk, using)
    if facts is None:
        said = [Reason("gone", f"{model._meta.label} {pk} is gone: there is no such row.")]
    else:
        said = [reason for say in ORDER for reason in say(facts)]
    return [replace(reason, remedy=REMEDIES.get(reason.code, "")) for reason in said]
