"""Findings for the troubles that stand, as the overview shows them: one for each cause."""

from stator.commands.doctor.finding import FAIL, OK, WARN, Finding
from stator.explain.troubles import Trouble
from stator.models import StatorModel
from stator.overview.survey import survey
from stator.overview.troubles import troubles_in

# Objects of these wait for a worker and get none, so the exit code says so; people may live with the others.
FAILURES = frozenset({"no_worker", "silent_worker", "late_leases", "schedule_late"})

# The checks "served" and "states" tell of these.
REPORTED_ELSEWHERE = frozenset({"unserved", "unknown_state"})


def troubles(alias: str, models: list[type[StatorModel]]) -> list[Finding]:
    """Return one finding for each trouble in a database, the worst first; a good one if there is none."""
    found = [
        _finding(trouble, alias)
        for trouble in troubles_in(survey(alias, models))
        if trouble.code not in REPORTED_ELSEWHERE
    ]
    well = "no object is stuck, quarantined or failing, nothing is paused, and live workers have the same code as here"
    return found or [Finding("troubles", alias, OK, well)]


def _finding(trouble: Trouble, alias: str) -> Finding:
    level = FAIL if trouble.code in FAILURES else WARN
    remedy = " ".join(filter(None, (trouble.advice, f"({trouble.command})" if trouble.command else "")))
    return Finding(trouble.code.replace("_", " "), alias, level, f"{trouble.where}: {trouble.text}", remedy)
