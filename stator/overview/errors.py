"""Errors of the latest attempts, grouped by fingerprint."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db.models import DurationField, ExpressionWrapper, F

from stator.conf import load_settings
from stator.explain.survey import Group
from stator.graph.durations import seconds_of
from stator.querysets import OperatorQuerySet
from stator.rows.clock import Now
from stator.rows.reports import Report

# The number of latest errors that are grouped.
GROUPED = 1000
COLUMNS = ("pk", "model_label", "fingerprint", "error", "state", "object_pk", "times", "at")


# The group of a report, the state where its object failed, and when it failed.
Reported = tuple[Group, str, datetime]


def groups(using: str, rows_of: dict[str, OperatorQuerySet]) -> tuple[list[Group], bool]:
    """Return the groups of each model of the database, most failing first, and whether there are older errors.

    ``rows_of``: the rows of each model by its label. Takes two statements, and one for each model with errors. Index
    ``stator_report_at``.
    """
    errors = Report.objects.using(using).filter(model_label__in=list(rows_of)).exclude(error="")
    latest = list(errors.order_by("-at").values_list(*COLUMNS)[: GROUPED + 1])
    found: dict[tuple[str, str], Group] = {}
    firsts: dict[int, Group] = {}
    pks: dict[str, dict[str, Reported]] = {}
    for pk, label, fingerprint, error, state, text, times, at in latest[:GROUPED]:
        if (group := found.get((label, fingerprint))) is None:
            group = found[label, fingerprint] = firsts[pk] = Group(label, fingerprint, error, state)
        group.count += 1
        group.attempts += times
        pks.setdefault(label, {})[text] = group, state, at
    _describe(using, firsts)
    for label, reported in pks.items():
        _judge(rows_of[label], reported)
    return sorted(found.values(), key=lambda group: (-len(group.failing), -group.count)), len(latest) > GROUPED


def fingerprinted(rows: OperatorQuerySet, fingerprint: str, page: int) -> Iterator[list[object]]:
    """Yield lists of up to ``page`` keys of failing rows whose latest error has this fingerprint; some may be empty."""
    label = rows.model._meta.label_lower
    reports = Report.objects.using(rows.db).filter(model_label=label, fingerprint=fingerprint).exclude(error="")
    last = 0
    while found := list(reports.filter(pk__gt=last).order_by("pk").values_list("pk", "object_pk")[:page]):
        last = found[-1][0]
        yield list(_failing(rows, [text for _, text in found]))


def _describe(using: str, firsts: dict[int, Group]) -> None:
    """Set each group's message and time from its latest report, unless that was deleted meanwhile."""
    age = ExpressionWrapper(Now() - F("at"), output_field=DurationField())
    for pk, message, span in Report.objects.using(using).filter(pk__in=firsts).values_list("pk", "message", age):
        firsts[pk].message, firsts[pk].latest = message, seconds_of(span)


def _judge(rows: OperatorQuerySet, reported: dict[str, Reported]) -> None:
    """Note in each group which of its objects fail, wait for a retry or gave up; one statement."""
    states = rows.model.state_graph.states
    automatic = {state.name for state in rows.model.state_graph.automatic_states}
    keys = dict(_keys(rows, reported))
    most = load_settings().MAX_CRASHES
    found = rows.filter(pk__in=list(keys), state_claim=None)
    for pk, state, failures, crashes, attempted in found.values_list(*_JUDGED):
        group, was, at = reported[keys[pk]]
        if state in automatic and (failures or crashes >= most):
            group.failing.append(pk)
        elif state == was and state in automatic and (attempted is None or attempted <= at):
            group.retried += 1
        elif state not in automatic and was in states and states[was].failure_state == state:
            group.gave_up += 1


_JUDGED = ("pk", "state", "state_failures", "state_crashes", "state_attempted")


def _failing(rows: OperatorQuerySet, texts: Iterable[str]) -> dict[object, str]:
    """Return the keys of objects that still fail and can be retried, with the keys' text in reports."""
    keys = dict(_keys(rows, texts))
    states = [state.name for state in rows.model.state_graph.automatic_states]
    found = rows.failed().filter(pk__in=list(keys), state_claim=None, state__in=states)
    return {pk: keys[pk] for pk in found.values_list("pk", flat=True)}


def _keys(rows: OperatorQuerySet, texts: Iterable[str]) -> Iterator[tuple[object, str]]:
    pk = rows.model._meta.pk
    to_python = getattr(pk, "target_field", pk).to_python
    for text in texts:
        try:
            yield to_python(text), text
        except ValidationError:
            # The report is from a time when the model had keys of another type.
            continue
