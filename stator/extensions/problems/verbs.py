"""What models, pages and commands offer of problems.

The functions import what answers when they are called: most processes, as those of workers, never ask.
"""

from typing import Any

from django.db.models import Model, QuerySet

from stator.asynchronous import in_thread
from stator.rows.meta import home_of
from stator.rows.problem import Problem, Reason
from stator.rows.readings import READINGS, Reading
from stator.rows.workers import Worker


def explain(self: Model) -> list[Reason]:
    """Return the reasons why the object is not moving, the most decisive first, read from the database now."""
    from stator.extensions.problems import reasons

    return reasons.explain(type(self), self.pk, home_of(self))


aexplain = in_thread(explain)


class Explaining:
    """Verbs of a queryset of a managed model."""

    def explain_counts(self: Any) -> dict[str, int]:
        """Return the number of rows by the code of the first reason that ``explain()`` gives for them."""
        from stator.extensions.problems.reasons import explain_counts

        return explain_counts(self)


def connect() -> None:
    """Add the readings, which pages and commands ask for that do not know problems."""
    READINGS["reasons"] = Reading(Worker, _reasons)
    READINGS["prospects"] = Reading(Worker, _prospects)
    READINGS["own_workers"] = Reading(Worker, _has_own_workers)


def _reasons(using: str, row: Any) -> tuple[list[Problem], bool]:
    """Return why an object does not move, and whether its page highlights that."""
    from stator.extensions.problems.kinds import kind_of

    # Models may have further reasons of their own.
    reasons: list[Problem] = row.explain()
    return reasons, any(kind_of(each.code).alarming for each in reasons)


def _prospects(using: str, rows: QuerySet[Model], pks: list[object], count: int) -> str:
    from stator.extensions.problems.reasons import prospects

    return prospects(rows, pks, count)


def _has_own_workers(using: str, label: str) -> bool:
    from stator.extensions.problems.kinds import knows_own_workers

    return knows_own_workers(label)
