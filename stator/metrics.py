"""Metrics of all models and workers for Prometheus, read from the database."""

from collections.abc import Iterator
from typing import Any

from django.db import connections, router
from django.db.models import Count, Sum

from stator.capabilities import capabilities_of
from stator.commands.doctor.postgresql import oldest_transaction
from stator.explain.notices import Notice
from stator.explain.troubles import Trouble
from stator.exposition import Labels, Metric
from stator.models import StatorModel, Worker
from stator.overview.depths import Depths
from stator.overview.survey import survey
from stator.overview.troubles import troubles_in
from stator.rows.meta import managed

HELP = {
    "stator_ready": "Objects that workers may claim now, counted up to 10,001.",
    "stator_oldest_ready_seconds": "How long the oldest ready object has waited, in seconds; 0 if none waits.",
    "stator_leased": "Objects that workers hold, counted up to 1,000.",
    "stator_late_leases": "Expired leases that no worker has ended yet.",
    "stator_quarantined": "Objects that lost so many leases that workers no longer attempt them, counted up to 10,001.",
    "stator_stuck": "Counted objects that have been in their state for longer than expect_within.",
    "stator_unknown": "Objects in states that this code does not know, counted up to 20,002.",
    "stator_troubles": "Current problems by model, code and level: how many objects each concerns, at least 1.",
    "stator_unserved": "Ready objects that no live worker serves, among the oldest of each group, by reason.",
    "stator_objects": "Objects in each state, counted up to 10,001.",
    "stator_workers": "Worker processes of the last day, by status.",
    "stator_lost_leases": "Leases that the workers of the last day lost.",
    "stator_oldest_transaction_seconds": "How long the oldest transaction in the database has been open, in seconds.",
}


def metrics() -> Iterator[Metric]:
    """Yield the metrics of all managed models; a bounded number of rows is read for each."""
    values: dict[str, dict[Labels, float]] = {name: {} for name in HELP}
    models = managed(StatorModel.subclasses)
    for alias in dict.fromkeys(router.db_for_write(model) for model in models):
        found = survey(alias, [model for model in models if router.db_for_write(model) == alias])
        for label, one in found.models.items():
            _add_model(values, label, one.depths)
            _add_notices(values, label, one.notices)
        _add_troubles(values, troubles_in(found))
        _add_database(values, alias)
    for name, numbers in values.items():
        yield Metric.of(name, "gauge", HELP[name], numbers)


def _add_model(values: dict[str, dict[Labels, float]], label: str, found: Depths) -> None:
    of: Labels = (("model", label),)
    values["stator_ready"][of] = found.ready
    values["stator_oldest_ready_seconds"][of] = found.waited or 0.0
    values["stator_leased"][of] = found.leased
    values["stator_late_leases"][of] = found.late
    values["stator_quarantined"][of] = found.quarantined
    values["stator_unknown"][of] = found.unknown
    values["stator_stuck"][of] = found.stuck_count
    for state in found.states.values():
        values["stator_objects"][*of, ("state", state.name)] = state.count


def _add_notices(values: dict[str, dict[Labels, float]], label: str, found: list[Notice]) -> None:
    for notice in found:
        if not notice.served:
            values["stator_unserved"][("model", label), ("group", notice.group), ("reason", notice.code)] = notice.count


def _add_troubles(values: dict[str, dict[Labels, float]], found: list[Trouble]) -> None:
    for trouble in found:
        # A problem with a worker has no model; a label for the worker would create a time series for each.
        of: Labels = (("model", trouble.model), ("code", trouble.code), ("level", trouble.level))
        values["stator_troubles"][of] = values["stator_troubles"].get(of, 0) + max(1, trouble.count)


def _add_database(values: dict[str, dict[Labels, float]], alias: str) -> None:
    of: Labels = (("database", alias),)
    rows: Any = Worker.objects.using(alias)
    counted = rows.with_status().order_by().values_list("status").annotate(Count("pk"))
    for status, count in (dict.fromkeys(("alive", "gone", "stopped"), 0) | dict(counted)).items():
        values["stator_workers"][*of, ("status", status)] = count
    values["stator_lost_leases"][of] = rows.aggregate(lost=Sum("lost"))["lost"] or 0
    if capabilities_of(connections[alias]).has_monitoring_views:
        values["stator_oldest_transaction_seconds"][of] = oldest_transaction(alias)
