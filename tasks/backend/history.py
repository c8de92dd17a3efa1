"""History of tasks' attempts, read by the statement that reads the tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Aggregate, CharField, JSONField, Model, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Cast, JSONObject
from django.db.models.sql.compiler import SQLCompiler

from stator.models import are_apart
from stator.rows.readings import read
from stator.texts import JsonObject
from tasks.datetimes import moment_of_text
from tasks.queue.run_history import in_history
from tasks.rows.databases import home
from tasks.rows.runs import version_at_claim
from tasks.rows.tables import run_rows, task_model, task_rows
from tasks.rows.tasks import TaskRow

if TYPE_CHECKING:
    from tasks.models import Task

RowT = TypeVar("RowT", bound=Model)

EVENTS, RUNS, REPORT = "kept_events", "kept_runs", "kept_report"

# The columns that are read for an attempt, of the history and of a run, and for the latest error.
EVENT = ("at", "version", "to", "worker", "claimed", "attempts", "error")
RUN = ("at", "version", "to", "token", "claimed", "attempt", "error")
ERROR = ("error", "message", "traceback")


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of one attempt: by its outcome, or by a move that ended it.

    ``stay``: the task's version during the attempt; each requeue begins a new stay. ``number``: the attempt's number in
    its stay; 0 for a move of a task that was never attempted.
    """

    at: datetime
    stay: int
    number: int
    to: str
    worker: str
    started: datetime
    error: str


class _All(Aggregate):
    """An aggregate of a group's values as a JSON array, in no order."""

    function = "JSON_GROUP_ARRAY"
    output_field = JSONField()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: object
    ) -> tuple[str, Sequence[object]]:
        return self.as_sql(compiler, connection, function="JSONB_AGG", **context)

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: object
    ) -> tuple[str, Sequence[object]]:
        return self.as_sql(compiler, connection, function="JSON_ARRAYAGG", **context)


def with_history(rows: QuerySet[RowT]) -> QuerySet[RowT]:
    """Annotate tasks with what :func:`events_of` and :func:`latest_error` read."""
    kept = _kept(rows.model, rows.db, object_pk=Cast(OuterRef("pk"), CharField(max_length=255)))
    rows = rows.annotate(**{RUNS: Subquery(_runs(rows.db, task=OuterRef("pk")).values("events"))})
    if kept is None:
        return rows.annotate(**{EVENTS: Value(None, JSONField()), REPORT: Value(None, JSONField())})
    events, errors = kept
    return rows.annotate(**{EVENTS: Subquery(events.values("events")), REPORT: Subquery(errors.values("found")[:1])})


def read_with_history(rows: "QuerySet[Task]") -> "list[Task]":
    """Read tasks and their history: with one statement, or with four if the tasks are on several nodes."""
    if not are_apart(rows.model, rows.db):
        return list(with_history(rows))
    tasks = list(rows)
    _add(tasks, rows.db)
    return tasks


def add_history(row: TaskRow) -> None:
    """Read the history of a task that was loaded without it: one statement, or three if tasks are on several nodes."""
    using = str(row._state.db)
    if are_apart(task_model(), using):
        _add([row], using)
    else:
        rows = task_rows(using).filter(pk=row.pk)
        row.__dict__.update(with_history(rows).values(EVENTS, RUNS, REPORT).first() or {})


def _add(rows: Sequence[TaskRow], using: str) -> None:
    kept = _kept(task_model(), using, object_pk__in=[str(row.pk) for row in rows])
    runs = dict(_runs(using, task__in=[row.pk for row in rows]).values_list("task", "events"))
    for row in rows:
        row.__dict__[RUNS] = runs.get(row.pk)
    if kept is None:
        return
    events, errors = kept
    events_by_key = dict(events.values_list("object_pk", "events"))
    errors_by_key = dict(errors.values_list("object_pk", "found"))
    for row in rows:
        key = str(row.pk)
        row.__dict__.update({EVENTS: events_by_key.get(key), REPORT: errors_by_key.get(key)})


def _kept(model: type[Model], using: str, **which: object) -> tuple[QuerySet[Any], QuerySet[Any]] | None:
    """Return the ``events`` of tasks in the history's table, and the latest error of each as ``found``, if kept."""
    if (records := read("records", using, model, which, otherwise=None)) is None:
        return None
    entries, errors = records
    events = entries.filter(source="pending").order_by().values("object_pk")
    return (
        events.annotate(events=_All(JSONObject(**_named(EVENT)))),
        errors.order_by().annotate(found=JSONObject(**_named(ERROR))),
    )


def _runs(using: str | None, **which: object) -> QuerySet[Model]:
    """Return the attempts of tasks that runs have, as ``events`` of each task."""
    kept = in_history(run_rows(using)).filter(**which).order_by().values("task")
    return kept.annotate(events=_All(JSONObject(**_named(RUN))))


def events_of(row: TaskRow) -> list[AttemptEnd]:
    """Return the recorded attempts of a task, in order."""
    kept = [_event(row, values) for values in row.__dict__.get(EVENTS) or ()]
    kept += [_event(row, _of_run(values)) for values in row.__dict__.get(RUNS) or ()]
    return sorted(kept, key=lambda event: (event.stay, event.number, event.at))


def latest_error(row: TaskRow) -> dict[str, str] | None:
    """Return the latest error with its traceback; earlier ones have only type and message."""
    return row.__dict__.get(REPORT)


def _named(columns: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(columns, columns, strict=True))


def _of_run(values: JsonObject) -> dict[str, object]:
    """Return the values of a run as those of an entry in the history."""
    to, token = values["to"] or "", values["token"].replace("-", "")
    version = version_at_claim(values["version"]) + bool(to)
    own = {"version": version, "to": to, "worker": token[:12], "attempts": values["attempt"]}
    return values | own | {"error": values["error"] or ""}


def _event(row: TaskRow, values: JsonObject) -> AttemptEnd:
    using = row._state.db or home()
    at = moment_of_text(values["at"], using)
    # A task that is moved by hand may never have been claimed.
    started = values["claimed"] and moment_of_text(values["claimed"], using)
    return AttemptEnd(
        at=at,
        stay=values["version"] - bool(values["to"]),
        number=values["attempts"],
        to=values["to"],
        worker=values["worker"],
        started=started or at,
        error=values["error"],
    )
