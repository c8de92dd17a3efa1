"""The checks of models: the problems that the overview shows, and models without a live worker."""

from collections import defaultdict
from dataclasses import replace

from stator.explain.kinds import kind_of, problems_in
from stator.explain.problem import ERROR, OK, WARNING, Problem
from stator.explain.survey import Survey
from stator.graph.durations import span
from stator.models import StatorModel
from stator.overview.survey import survey
from stator.rows.workers import WORKER_ALIVE

# The texts of checks that find no problem.
WELL = {
    "states": "all states of rows are known",
    "served": "live workers serve all objects that are next",
    "troubles": "no object is stuck, quarantined or failing, nothing is paused, and live workers have the same code as "
    "here",
}  # fmt: skip


def troubles(alias: str, models: list[type[StatorModel]]) -> list[Problem]:
    """Return each problem in a database, the worst first, and what is well."""
    known = survey(alias, models)
    by_check: dict[str, list[Problem]] = defaultdict(list)
    for one in problems_in(known):
        by_check[kind_of(one.code).check or "troubles"].append(_judged(one))
    for check, sentence in WELL.items():
        if not by_check[check]:
            by_check[check].append(Problem(check, sentence, level=OK))
    return [_live_workers(known), *(one for found in by_check.values() for one in found)]


def _judged(one: Problem) -> Problem:
    """Return a problem under the name of its check; it is an error only if that decides about the exit code."""
    kind = kind_of(one.code)
    # States that live workers know are well.
    known_elsewhere = kind.check == "states" and one.level != ERROR
    remedy = " ".join(filter(None, (one.remedy, f"({one.command})" if one.command else "")))
    return replace(
        one, code=kind.check or one.code.replace("_", " "), sentence=f"{one.where}: {one.text}", remedy=remedy,
        level=OK if known_elsewhere else ERROR if kind.fails else WARNING,
    )  # fmt: skip


def _live_workers(known: Survey) -> Problem:
    """Check that every model has a live worker; objects that wait for one are a problem of their own."""
    if idle := [one.label for one in known.models.values() if not one.live]:
        said = f"no live worker serves {', '.join(idle)}; no heartbeat in the last {span(WORKER_ALIVE)}"
        return Problem("workers", said, remedy="start manage.py runstator for them", level=WARNING)
    return Problem("workers", "every model has a live worker", level=OK)
