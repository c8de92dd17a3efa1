"""What the reports and the history say to those who show it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Exists, Model, QuerySet

from stator.extensions.reports.groups import fingerprinted, groups
from stator.extensions.reports.models import History, Report, fingerprint_of, reports_of
from stator.extensions.reports.reading import history_of
from stator.extensions.reports.stays import stays
from stator.graph.failures import lease_lost
from stator.rows.readings import READINGS, Reading
from stator.rows.records import records_of


def connect() -> None:
    """Offer the readings."""
    READINGS["report"] = Reading(Report, report)
    READINGS["with_report"] = Reading(Report, with_report)
    READINGS["reported"] = Reading(Report, reported)
    READINGS["fingerprint"] = Reading(Report, fingerprint_of)
    READINGS["groups"] = Reading(Report, groups)
    READINGS["fingerprinted"] = Reading(Report, fingerprinted)
    READINGS["stays"] = Reading(History, stays)
    READINGS["entries"] = Reading(History, entries)
    READINGS["records"] = Reading(History, records)
    READINGS["retry"] = Reading(History, latest_retry)
    READINGS["lost_holders"] = Reading(History, lost_holders)


def report(using: str, model: type[Model], pk: object) -> Report | None:
    """Return the latest report on an object."""
    return records_of(Report, model, pk, using).first()


def with_report(using: str, model: type[Model], lookups: Mapping[str, object]) -> Exists:
    """Return the condition of the rows of a model whose latest report matches."""
    return Exists(reports_of(model, using, **lookups))


def reported(
    using: str, label: str, keys: Iterable[str], columns: Sequence[str], failed: bool = True
) -> Iterable[tuple[Any, ...]]:
    """Return columns of the latest reports on these objects of a model: of errors, or else of reasons to wait."""
    reports = Report.objects.using(using).filter(model_label=label, object_pk__in=list(keys))
    return (reports.exclude(error="") if failed else reports.filter(error="")).values_list(*columns)


def entries(using: str, model: type[Model], pk: object, most: int) -> list[History]:
    """Return the latest entries of the history of an object, the newest first."""
    return history_of(model, pk, using, most)


def records(
    using: str, model: type[Model], lookups: Mapping[str, object]
) -> tuple[QuerySet[History], QuerySet[Report]]:
    """Return the entries of the history, and the latest errors, of objects of a model."""
    mine = {"model_label": model._meta.label_lower, **lookups}
    return History.objects.using(using).filter(**mine), Report.objects.using(using).filter(**mine).exclude(error="")


def latest_retry(using: str, model: type[Model], pk: object) -> History | None:
    """Return the latest retry of an object by hand."""
    acts = records_of(History, model, pk, using).filter(kind=History.Kind.HAND, reason__startswith="retried")
    return acts.order_by("-at").first()


def lost_holders(using: str, model: type[Model], pk: object) -> QuerySet[History, object]:
    """Return the ids of the workers that lost their leases on an object, for a subquery."""
    return records_of(History, model, pk, using).filter(fingerprint=lease_lost().fingerprint).values("worker")
