"""Read everything that shows problems with the models of a database; bounded, however many rows there are."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from django.db import DatabaseError, connections

from stator.db.conditions import Stored, StoredCondition, all_stored_kinds
from stator.db.engines import refusal_of_writes
from stator.db.tables import lack_of, probe_columns, wrong_expression
from stator.extensions.problems.kinds import KINDS, in_order, kinds_of_apps, problems_in, reading_kinds
from stator.extensions.problems.starving import starving_in
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet, rows_by_label
from stator.rows.clock import Now
from stator.rows.meta import by_database, model_named
from stator.rows.problem import Problem
from stator.rows.readings import read
from stator.rows.workers import Worker
from stator.survey.depths import StateCounts, counts, depths, empty
from stator.survey.estimates import Pace
from stator.survey.looks import Looks
from stator.survey.numbers import Depths
from stator.survey.workers import workers_holding


def surveys(models: Iterable[type[StatorModel]], using: str | None = None) -> list[Survey]:
    """Read some models in the databases that they are written to, or all of them in the given database."""
    return [survey(alias, part) for alias, part in by_database(models, using).items()]


def problems(surveyed: Iterable[Survey]) -> list[Problem]:
    """Return the problems of some databases, the worst first."""
    return in_order(one for each in surveyed for one in problems_in(each))


def survey(using: str, models: Iterable[type[StatorModel]]) -> Survey:
    """Read some models of a database: ten statements or so, those by apps' kinds, and some for each ill one."""
    rows_of = rows_by_label(models, using)
    with Looks(using, [rows.model for rows in rows_of.values()]) as looks:
        return _survey(using, rows_of, looks)


def _survey(using: str, rows_of: dict[str, OperatorQuerySet[StatorModel]], looks: Looks) -> Survey:
    stored = _stored(using, looks)
    lacks = {label: lack for label, rows in rows_of.items() if (lack := wrong_expression(rows.model, using))}
    lacks |= _incomplete(rows_of, lacks, looks)
    readable = {label: rows for label, rows in rows_of.items() if label not in lacks and label not in looks.unread}
    counted = looks.together(partial(counts, readable)) or {}
    depths_of = {label: _depths(rows, lacks, looks, counted.get(label)) for label, rows in rows_of.items()}
    people = workers_holding(using, ((label, one) for label, depths in depths_of.items() for one in depths.held), looks)
    failing = [label for label, depths in depths_of.items() if depths.failing or depths.quarantined]
    known = {label: rows for label, rows in rows_of.items() if label not in lacks and label not in looks.unread}
    groups, older = read("groups", using, known, failing, looks, otherwise=([], False))
    alive = [process.worker for process in people.processes if process.status == "alive"]
    fleet = read("fleet", using, alive, otherwise=None)
    behind = [label for label, depths in depths_of.items() if depths.is_behind]
    pace_of: dict[str, Pace] = looks.of("paces", behind, otherwise={})
    said = {label: [kind.said(label, read) for kind, read in stored.items()] for label in rows_of}
    surveyed = {
        label: Surveyed(
            rows.model, using, depths_of[label], people.crew(label),
            [group for group in groups if group.label == label], fleet.versions(rows.model) if fleet else [],
            fleet.knowing(rows.model) if fleet else {},
            {
                kind.code: looks.at(rows.model, partial(kind.reads, rows, depths_of[label]), [])
                for kind in KINDS
                if kind.reads is not None
            },
            lacking=lacks.get(label, ""),
            pace=pace_of.get(label),
            stored={
                kind.in_force(using).model: [each for each in read if each.model_label == label]
                for kind, read in stored.items()
            },
            left_out=left_out(rows.model, said[label]),
            starving=looks.at(rows.model, partial(starving_in, rows, depths_of[label], said[label]), None),
        )
        for label, rows in rows_of.items()
    }  # fmt: skip
    refusal = looks.at(Worker, partial(refusal_of_writes, connections[using]), "")
    for kind in KINDS:
        if kind.covers is not None:
            for one in surveyed.values():
                one.covered.update(kind.covers(one))
        if kind.tells is not None:
            for one in surveyed.values():
                one.counted.update(kind.tells(one))
    made = Survey(using, surveyed, people, groups, older, looks.unread, refusal)
    for kind in kinds_of_apps():
        for problem in looks.at(model_named(kind.model), partial(kind.found_in, made), []):
            surveyed[kind.model].own.append(problem)
    for kind in reading_kinds():
        for label in sorted(made.readable):
            one = surveyed[label]
            one.own.extend(looks.at(one.model, partial(kind.read_in, one), []))
    return made


def _stored(using: str, looks: Looks) -> dict[type[StoredCondition], list[Any]]:
    """Return what people have stored of rows in a database, each with ``read_at``."""
    rows = {kind: kind.in_force(using).annotate(read_at=Now()) for kind in all_stored_kinds()}
    return {kind: looks.at(each.model, partial(list, each), []) for kind, each in rows.items()}


def left_out(model: type[StatorModel], said: Iterable[Stored]) -> frozenset[str]:
    """Return the automatic states that stored conditions leave out as a whole."""
    states = running = list(model.state_graph.automatic_states)
    for each in said:
        running = each.running(running)
    return frozenset({state.name for state in states} - {state.name for state in running})


def _incomplete(rows_of: dict[str, OperatorQuerySet], lacks: Collection[str], looks: Looks) -> dict[str, str]:
    """Return what further models lack: the numbers need not all columns, but workers do."""
    others = {label: rows.model for label, rows in rows_of.items() if label not in lacks}
    try:
        with looks.limits():
            probe_columns(others.values(), looks.using)
    except DatabaseError:
        lacking = {label: lack for label, model in others.items() if (lack := lack_of(model, looks.using))}
        for label in others.keys() - lacking.keys():
            looks.at(others[label], partial(probe_columns, [others[label]], looks.using), None)
        return lacking
    return {}


def _depths(rows: OperatorQuerySet, lacks: dict[str, str], looks: Looks, counted: StateCounts | None) -> Depths:
    """Return the numbers of a model; none if it lacks something or cannot be read."""
    if rows.model._meta.label_lower in lacks:
        return empty(rows)
    return looks.at(rows.model, partial(depths, rows, counted), empty(rows))
