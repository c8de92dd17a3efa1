"""Metrics of all models and workers for Prometheus, read from the database."""

from collections.abc import Iterator
from functools import cache

from django.db import connections
from django.db.models import Count, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from django.utils.module_loading import import_string
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from stator.batteries import extensions
from stator.capabilities import capabilities_of
from stator.conf import read_settings
from stator.extensions.metrics.measures import counted_in_process
from stator.extensions.problems.commands.doctor.postgresql import oldest_transaction
from stator.extensions.problems.in_schemas import InSchemas, in_schemas
from stator.extensions.problems.kinds import problems_in
from stator.extensions.problems.survey import surveys
from stator.extensions.problems.surveyed import Gauge
from stator.models import StatorModel, Worker
from stator.rows.meta import managed
from stator.rows.problem import Problem
from stator.survey.looks import works_in_schemas
from stator.survey.numbers import Depths
from stator.views import is_authorised

# The labels of each metric, and its help text.
GAUGES: dict[str, tuple[tuple[str, ...], str]] = {
    "stator_ready": (("model",), "Objects that workers may claim now, counted up to 10,001."),
    "stator_oldest_ready_seconds": (
        ("model",), "How long the oldest ready object has waited, in seconds; 0 if none waits.",
    ),
    "stator_leased": (("model",), "Objects that workers hold, counted up to 1,000."),
    "stator_late_leases": (("model",), "Expired leases that no worker has ended yet."),
    "stator_quarantined": (
        ("model",), "Objects that lost so many leases that workers no longer attempt them, counted up to 10,001.",
    ),
    "stator_stuck": (("model",), "Counted objects that have been in their state for longer than expect_within."),
    "stator_unknown": (("model",), "Objects in states that this code does not know, counted up to 20,002."),
    "stator_troubles": (
        ("model", "code", "level"),
        "Current problems by model, code and level: how many objects each concerns, at least 1.",
    ),
    "stator_unserved": (
        ("model", "group", "reason"),
        "Ready objects that no live worker serves, among the oldest of each group, by reason.",
    ),
    "stator_schema_ready": (
        ("schema", "model"), "Objects that workers may claim now, in each schema of SCHEMAS that has any.",
    ),
    "stator_schema_leased": (("schema", "model"), "Objects that workers hold, in each schema of SCHEMAS that has any."),
    "stator_schema_failing": (
        ("schema", "model"), "Objects whose last attempt failed, in each schema of SCHEMAS that has any.",
    ),
    "stator_schema_quarantined": (
        ("schema", "model"), "Objects that workers no longer attempt, in each schema of SCHEMAS that has any.",
    ),
    "stator_schemas_without_worker": (("database",), "Schemas of SCHEMAS that no live worker serves."),
    "stator_objects": (("model", "state"), "Objects in each state, counted up to 10,001."),
    "stator_workers": (("database", "status"), "Worker processes of the last day, by status."),
    "stator_lost_leases": (("database",), "Leases that the workers of the last day lost."),
    "stator_oldest_transaction_seconds": (
        ("database",), "How long the oldest transaction in the database has been open, in seconds.",
    ),
}  # fmt: skip


@cache
def _further() -> list[Gauge]:
    return [import_string(path) for extension in extensions() for path in extension.gauges]


def gauges() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return the labels and the help text of each metric, those of extensions too."""
    return GAUGES | {gauge.name: (gauge.labels, gauge.help) for gauge in _further()}


# The values of each metric by its labels.
Values = dict[str, dict[tuple[str, ...], float]]


class SiteMetrics:
    """A collector of the metrics of all managed models; a bounded number of rows is read for each."""

    def collect(self) -> Iterator[Metric]:
        """Read the metrics from the database."""
        values: Values = {name: {} for name in gauges()}
        models = managed(StatorModel.subclasses)
        if works_in_schemas():
            _add_schemas(values, in_schemas(models, with_signs=False))
        for survey in () if works_in_schemas() else surveys(models):
            for label, one in survey.models.items():
                _add_model(values, label, one.depths)
                _add_unserved(values, label, one.unserved)
            _add_problems(values, problems_in(survey))
            _add_database(values, survey.using)
            for each in _further():
                for key, value in each.read(survey):
                    # The models of several databases may have one label.
                    values[each.name][key] = values[each.name].get(key, 0) + value
        for name, (labels, help_text) in gauges().items():
            gauge = GaugeMetricFamily(name, help_text, labels=labels)
            for given, value in values[name].items():
                gauge.add_metric(given, value)
            yield gauge
        yield from counted_in_process()


def _add_schemas(values: Values, known: InSchemas) -> None:
    for name, looked in known.total().items():
        label = name.lower()
        values["stator_ready"][label,] = looked.ready
        values["stator_oldest_ready_seconds"][label,] = looked.oldest_ready or 0.0
        values["stator_leased"][label,] = looked.leased
        values["stator_quarantined"][label,] = looked.quarantined
    for scope, models in known.by_scope.items():
        for name, looked in models.items():
            for figure in ("ready", "leased", "failing", "quarantined"):
                # Thousands of schemas that are well would be as many time series.
                if count := getattr(looked, figure):
                    values[f"stator_schema_{figure}"][scope.path, name.lower()] = count
    for alias in {scope.alias for scope in known.by_scope}:
        values["stator_schemas_without_worker"][alias,] = sum(scope.alias == alias for scope in known.alone)


def _add_model(values: Values, label: str, depths: Depths) -> None:
    values["stator_ready"][label,] = depths.ready
    values["stator_oldest_ready_seconds"][label,] = depths.waited or 0.0
    values["stator_leased"][label,] = depths.leased
    values["stator_late_leases"][label,] = depths.late
    values["stator_quarantined"][label,] = depths.quarantined
    values["stator_unknown"][label,] = depths.unknown
    values["stator_stuck"][label,] = depths.stuck_count
    for state in depths.states.values():
        values["stator_objects"][label, state.name] = state.count


def _add_unserved(values: Values, label: str, problems: list[Problem]) -> None:
    for one in problems:
        if one.code == "unserved":
            values["stator_unserved"][label, one.numbers["group"], one.numbers["reason"]] = one.count


def _add_problems(values: Values, problems: list[Problem]) -> None:
    for one in problems:
        # A problem with a worker has no model; a label for the worker would create a time series for each.
        of = (one.model, one.code, one.level)
        values["stator_troubles"][of] = values["stator_troubles"].get(of, 0) + max(1, one.count)


def _add_database(values: Values, alias: str) -> None:
    rows = Worker.objects.using(alias)
    counted = rows.with_status().order_by().values_list("status").annotate(Count("pk"))
    for status, count in (dict.fromkeys(("alive", "silent", "stopped"), 0) | dict(counted)).items():
        values["stator_workers"][alias, status] = count
    values["stator_lost_leases"][alias,] = rows.aggregate(lost=Sum("lost"))["lost"] or 0
    if capabilities_of(connections[alias]).has_monitoring_views:
        values["stator_oldest_transaction_seconds"][alias,] = oldest_transaction(alias)


@never_cache
@require_safe
def show_metrics(request: HttpRequest) -> HttpResponse:
    """Show the metrics to requests with ``Authorization: Bearer TOKEN``.

    Other requests, and all requests if no token is set, get a 404.
    """
    settings, problems = read_settings()
    if problems or not is_authorised(request, settings):
        raise Http404
    return HttpResponse(generate_latest(SiteMetrics()), content_type=CONTENT_TYPE_PLAIN_0_0_4)


urlpatterns = [path("metrics/", show_metrics, name="metrics")]
