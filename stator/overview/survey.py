"""Read everything that shows problems with the models of a database; bounded, however many rows there are."""

from collections.abc import Iterable
from contextlib import nullcontext

from django.db import DatabaseError, connections
from django.db.transaction import atomic

from stator.db.schema import lack_of, probe_columns, wrong_expression
from stator.explain.kinds import in_order, problems_in, problems_of_apps
from stator.explain.problem import Problem
from stator.explain.survey import Depths, Survey, Surveyed
from stator.models import StatorModel
from stator.overview.depths import depths, empty
from stator.overview.errors import groups
from stator.overview.replica import Read
from stator.overview.waiters import waiters
from stator.overview.workers import workers_holding
from stator.querysets import OperatorQuerySet, rows_by_label
from stator.rows.clock import Now
from stator.rows.meta import by_database
from stator.rows.pauses import MAX_PAUSES, Pause
from stator.rows.versions import Fleet


def surveys(models: Iterable[type[StatorModel]], using: str | None = None, read: Read = str) -> list[Survey]:
    """Read some models in the databases that they are written to, or all of them in the given database."""
    return [survey(read(alias), part, alias) for alias, part in by_database(models, using).items()]


def problems(found: Iterable[Survey]) -> list[Problem]:
    """Return the problems of some databases, the worst first."""
    return in_order(one for each in found for one in problems_in(each))


def survey(using: str, models: Iterable[type[StatorModel]], home: str = "") -> Survey:
    """Read some models of a database: one or two statements for each, six or so for all, and those by apps' kinds."""
    rows_of = rows_by_label(models, using)
    pauses: list[Pause] = list(Pause.objects.using(using).active().annotate(read_at=Now()).order_by("pk")[:MAX_PAUSES])
    lacks = {label: lack for label, rows in rows_of.items() if (lack := wrong_expression(rows.model, using))}
    depths_of = _all_depths(using, rows_of, lacks)
    people = workers_holding(using, ((label, one) for label, found in depths_of.items() for one in found.held))
    failing = [label for label, found in depths_of.items() if found.failing or found.quarantined]
    found_groups, older = groups(using, {label: rows for label, rows in rows_of.items() if label not in lacks}, failing)
    fleet = Fleet.of(using)
    found = {
        label: Surveyed(
            rows.model, using, depths_of[label], [pause for pause in pauses if pause.model_label == label],
            people.live[label], [group for group in found_groups if group.label == label],
            fleet.versions(rows.model), fleet.knowing(rows.model),
            waiters(rows, [one.state for one in depths_of[label].automatic if one.state and one.resting]),
            lacking=lacks.get(label, ""),
        )
        for label, rows in rows_of.items()
    }  # fmt: skip
    known = Survey(using, found, people, found_groups, older, home or using)
    for label, problem in problems_of_apps(known):
        found[label].own.append(problem)
    return known


def _all_depths(using: str, rows_of: dict[str, OperatorQuerySet], lacks: dict[str, str]) -> dict[str, Depths]:
    """Return the numbers of each complete model; add what the other models lack to ``lacks``."""
    # Within a transaction, a statement that fails must not end it.
    guard = atomic(using=using) if connections[using].in_atomic_block else nullcontext()
    try:
        with guard:
            # The numbers need not all columns, but workers do.
            probe_columns((rows.model for label, rows in rows_of.items() if label not in lacks), using)
            return {label: empty(rows) if label in lacks else depths(rows) for label, rows in rows_of.items()}
    except DatabaseError:
        found = {
            label: lack for label, rows in rows_of.items()
            if label not in lacks and (lack := lack_of(rows.model, using))
        }  # fmt: skip
        if not found:
            raise
    lacks |= found
    return _all_depths(using, rows_of, lacks)
