"""The checks of models: the problems that the overview shows, and models without a live worker."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from stator.extensions.problems.kinds import kind_of, problems_in
from stator.extensions.problems.survey import survey
from stator.extensions.problems.surveyed import Survey
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.problem import OK, WARNING, Problem
from stator.rows.workers import WORKER_ALIVE

# The texts of checks that find no problem.
WELL = {
    "states": "all states of rows are known",
    "served": "live workers serve all objects that are next",
    "troubles": "no object is stuck, quarantined or failing, nothing is paused, and no live worker has other code than "
    "here",
}  # fmt: skip


def troubles(alias: str, models: list[type[StatorModel]]) -> list[Problem]:
    """Return each problem in a database, the worst first, and what is well."""
    known = survey(alias, models)
    standing = problems_in(known)
    some_live = any(one.live for one in known.models.values())
    return [*_live_workers(known, standing), *judged(standing, some_live=some_live)]


def judged(standing: Iterable[Problem], *, some_live: bool = True) -> list[Problem]:
    """Return problems under the names of their checks, and what is well; without a live worker, nothing is served."""
    by_check: dict[str, list[Problem]] = defaultdict(list)
    for one in standing:
        by_check[kind_of(one.code).check or "troubles"].append(_named(one))
    for check, sentence in WELL.items():
        if not by_check[check] and (some_live or check != "served"):
            by_check[check].append(Problem(check, sentence, level=OK))
    return [one for same in by_check.values() for one in same]


def _named(one: Problem) -> Problem:
    """Return a problem under the name of its check."""
    remedy = " ".join(filter(None, (one.remedy, f"({one.command})" if one.command else "")))
    name = kind_of(one.code).check or one.code.replace("_", " ")
    return replace(one, code=name, sentence=f"{one.where}: {one.text}", remedy=remedy)


def _live_workers(known: Survey, standing: Iterable[Problem]) -> Iterator[Problem]:
    """Check that every model has a live worker; objects that wait for one are a problem of their own."""
    if not all(one.crew.known for one in known.models.values()):
        # Why they could not be read is a problem of its own.
        return
    without = {model for one in standing if one.code == "no_worker" for model in one.numbers["models"]}
    if idle := [one.label for one in known.models.values() if not one.live and one.label not in without]:
        said = f"no live worker serves {', '.join(idle)}; no heartbeat in the last {span(WORKER_ALIVE)}"
        yield Problem("workers", said, remedy="start manage.py runstator for them", level=WARNING)
    elif not without:
        yield Problem("workers", "every model has a live worker", level=OK)
