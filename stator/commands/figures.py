"""Bounded counts for a model, read from its indexes, so that they cost the same however large the table is."""

from django.db.models import Model, QuerySet

from stator.querysets import OperatorQuerySet
from stator.rows.reports import Report

# Rows of one kind are counted up to this number.
COUNTED = 10_000

# Objects that are looked up at once.
CHUNK = 1000


def bounded(rows: QuerySet[Model]) -> int:
    """Return the number of rows, counted up to one more than ``COUNTED``."""
    return int(rows.order_by().values("pk")[: COUNTED + 1].count())


def failing(rows: OperatorQuerySet) -> int:
    """Return how many rows failed at their latest attempt, counted as above. Index ``st_fail``."""
    return bounded(rows.filter(state_failures__gt=0))


def failing_pks(rows: OperatorQuerySet) -> list[object]:
    """Return the keys of rows whose latest attempt failed, among those with the latest reports, latest first."""
    label, to_python = rows.model._meta.label_lower, rows.model._meta.pk.to_python
    reports = Report.objects.using(rows.db).filter(model_label=label).exclude(error="")
    pks = [to_python(text) for text in reports.order_by("-at").values_list("object_pk", flat=True)[:COUNTED]]
    failing = set[object]()
    for start in range(0, len(pks), CHUNK):
        chunk = rows.filter(pk__in=pks[start : start + CHUNK], state_failures__gt=0)
        failing.update(chunk.values_list("pk", flat=True))
    return [pk for pk in pks if pk in failing]


def shown(count: int) -> str:
    """Return a count as text for a table."""
    return f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"
