"""Read everything that shows problems with the models of a database; bounded, however many rows there are."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from stator.db.schema import lack_of, probe_columns, wrong_expression
from stator.explain.causes import failed_look
from stator.explain.kinds import ProblemKind, in_order, kinds_of_apps, problems_in
from stator.explain.problem import Problem
from stator.explain.survey import AwaitedObject, Depths, Survey, Surveyed
from stator.models import StatorModel
from stator.overview.apart import Apart, guarded
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

# What objects wait for if that cannot be read.
NOBODY: list[AwaitedObject] = []


def surveys(models: Iterable[type[StatorModel]], using: str | None = None, read: Read = str) -> list[Survey]:
    """Read some models in the databases that they are written to, or all of them in the given database."""
    return [survey(read(alias), part, alias) for alias, part in by_database(models, using).items()]


def problems(found: Iterable[Survey]) -> list[Problem]:
    """Return the problems of some databases, the worst first."""
    return in_order(one for each in found for one in problems_in(each))


def survey(using: str, models: Iterable[type[StatorModel]], home: str = "") -> Survey:
    """Read some models of a database: one or two statements for each, six or so for all, and those by apps' kinds.

    A model that cannot be read is a problem of its own, and hides no other.
    """
    models = list(models)
    try:
        with guarded(using):
            return _survey(using, models, home, Apart(using, raises=True))
    except Exception:  # noqa: BLE001 - raised again unless it is of one model
        return _survey(using, models, home, Apart(using))


def _survey(using: str, models: Iterable[type[StatorModel]], home: str, apart: Apart) -> Survey:
    rows_of = rows_by_label(models, using)
    pauses: list[Pause] = list(Pause.objects.using(using).active().annotate(read_at=Now()).order_by("pk")[:MAX_PAUSES])
    depths_of = _all_depths(using, rows_of, apart)
    people = workers_holding(using, ((label, one) for label, found in depths_of.items() for one in found.held))
    failing = [label for label, found in depths_of.items() if found.failing or found.quarantined]
    complete = {label: rows for label, rows in rows_of.items() if label not in apart.failed}
    found_groups, older = groups(using, complete, failing, apart)
    waiting: dict[str, list[AwaitedObject]] = {
        label: apart.look(label, partial(_waiters, rows, depths_of[label]), NOBODY) for label, rows in complete.items()
    }
    fleet = Fleet.of(using)
    found = {
        label: Surveyed(
            rows.model, using, depths_of[label], [pause for pause in pauses if pause.model_label == label],
            people.live[label], [group for group in found_groups if group.label == label],
            fleet.versions(rows.model), fleet.knowing(rows.model), waiting.get(label, []),
            lacking=apart.failed.get(label, ""),
        )
        for label, rows in rows_of.items()
    }  # fmt: skip
    known = Survey(using, found, people, found_groups, older, home or using)
    _add_own(known, apart)
    return known


def _waiters(rows: OperatorQuerySet, found: Depths) -> list[AwaitedObject]:
    return waiters(rows, [one.state for one in found.automatic if one.state and one.resting])


def _add_own(known: Survey, apart: Apart) -> None:
    """Add what the kinds of apps find, each to the model of its kind."""
    before = dict(apart.failed)
    for kind in kinds_of_apps():
        found: list[Problem] = apart.look(kind.model, partial(_found_by, kind, known), [])
        if found:
            known.models[kind.model].own.extend(found)
    for label in apart.failed.keys() - before.keys() & known.models.keys():
        known.models[label].own.append(failed_look(known.models[label], apart.failed[label]))


def _are_complete(models: Iterable[type[StatorModel]], using: str) -> bool:
    probe_columns(models, using)
    return True


def _found_by(kind: ProblemKind, known: Survey) -> list[Problem]:
    return list(kind.found_in(known))


def _all_depths(using: str, rows_of: dict[str, OperatorQuerySet], apart: Apart) -> dict[str, Depths]:
    """Return the numbers of each complete model; note what keeps the others from being read."""
    models: dict[str, Any] = {label: rows.model for label, rows in rows_of.items()}
    apart.failed |= {label: lack for label, model in models.items() if (lack := wrong_expression(model, using))}
    complete = [label for label in models if label not in apart.failed]
    # The numbers need not all columns, but workers do. Nearly always no model lacks one.
    if not apart.look("", partial(_are_complete, [models[label] for label in complete], using), False):
        apart.failed.pop("")
        for label in complete:
            if lack := lack_of(models[label], using):
                apart.failed[label] = lack
            else:
                apart.look(label, partial(_are_complete, [models[label]], using), False)
    return {
        label: empty(rows) if label in apart.failed else apart.look(label, partial(depths, rows), empty(rows))
        for label, rows in rows_of.items()
    }
