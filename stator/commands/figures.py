"""Figures about a model, read from its indexes and bounded, so that they cost the same whatever the table holds."""

from typing import Any

from django.db.models import DurationField, ExpressionWrapper, Min
from django.db.models.functions import Now

from stator.commands.arguments import database_of
from stator.conf import load_settings
from stator.indexes import place_in_line
from stator.querysets import OperatorQuerySet
from stator.reports import Report

# Rows of one kind are counted so far.
COUNTED = 10_000

# Objects that were looked up at once.
CHUNK = 1000


def databases_of(models: list[Any], options: dict[str, Any]) -> list[str]:
    """The databases in which models are written."""
    return list(dict.fromkeys(database_of(options, model) for model in models))


def bounded(rows: Any) -> int:
    """How many rows there are, counted up to one more than ``COUNTED``."""
    return int(rows.order_by().values("pk")[: COUNTED + 1].count())


def counts(rows: OperatorQuerySet) -> dict[str, int]:
    """How many rows are in each state of the graph, and in others where ready or leased rows show them.

    More than ``COUNTED`` where counting was given up.
    """
    found: dict[str, int] = dict.fromkeys(rows.model.state_graph.states, 0)
    for part in (rows.filter(state_ready=True), rows.filter(state_claim__isnull=False)):
        for name in part.order_by().values_list("state", flat=True)[:COUNTED]:
            found[name] = found.get(name, 0) + 1
    for name in found:
        found[name] += bounded(rows.filter(state_ready=False, state_claim=None, state=name))
    return found


def oldest_ready(rows: OperatorQuerySet) -> float | None:
    """Seconds for which the first in line has waited."""
    waited = ExpressionWrapper(Now() - Min(place_in_line()), output_field=DurationField())
    oldest = rows.filter(state_ready=True).aggregate(waited=waited)["waited"]
    return None if oldest is None else max(0.0, oldest.total_seconds())


def failing(rows: OperatorQuerySet) -> int:
    """How many rows failed at their latest attempt, among those with the latest reports of errors."""
    label, to_python = rows.model._meta.label_lower, rows.model._meta.pk.to_python
    reports = Report.objects.using(rows.db).filter(model_label=label).exclude(error="")
    pks = [to_python(text) for text in reports.order_by().values_list("object_pk", flat=True)[:COUNTED]]
    chunks = (pks[start : start + CHUNK] for start in range(0, len(pks), CHUNK))
    return sum(rows.filter(pk__in=chunk, state_failures__gt=0).count() for chunk in chunks)


def quarantined(rows: OperatorQuerySet) -> int:
    """How many rows are in quarantine."""
    return bounded(rows.filter(state_crashes__gt=0, state_crashes__gte=load_settings().MAX_CRASHES))


def shown(count: int) -> str:
    """A count in words of a table."""
    return f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"
