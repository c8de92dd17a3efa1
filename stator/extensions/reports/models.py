"""Rows beside the rows: the latest error or reason of each object, and its moves, errors and manual actions."""

from collections.abc import Iterable, Mapping, Sequence

from django.db import connections, models
from django.db.models import F, Model, QuerySet, Subquery

from stator.extensions.reports.attempt_log import AttemptLog
from stator.graph.failures import Failure
from stator.rows.clock import Now, seconds_ahead
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH, key_lookups, key_text, key_values
from stator.rows.meta import field_of
from stator.rows.record_tables import RecordTable, add_record_table
from stator.rows.records import REASON_LENGTH, conflict_target, inserting, send
from stator.rows.state_column import state_field
from stator.scopes import are_apart, read_first
from stator.statements import Parameter, Statement, StatementCache, is_one_of


class Report(models.Model):
    """The latest error of one object, or its latest reason to wait."""

    model_label = models.CharField(max_length=200)
    object_pk = models.CharField(max_length=KEY_LENGTH)
    state = models.CharField(max_length=100)
    at = MomentField(db_default=Now())
    error = models.CharField(max_length=200, blank=True, help_text="Type of the exception; empty for a reason to wait.")
    message = models.TextField(blank=True)
    traceback = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=16, blank=True)
    times = models.PositiveIntegerField(default=1, help_text="How often in a row the same was said.")
    worker = models.CharField(max_length=32, blank=True)
    log = models.TextField(null=True, blank=True, help_text="What the attempt logged.")  # noqa: DJ001 - not every statement names it

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model_label", "object_pk"], name="stator_report_one_per_object")
        ]
        indexes = [models.Index(fields=["at"], name="stator_report_at")]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.error or 'waits'}: {self.message[:80]}"


class History(models.Model):
    """One entry in the life of one object: a move, an error, a manual action, or an event that was sent to it.

    Manual actions and events are always stored; moves and errors only for models with ``StatorMeta.history``, and
    attempts that ended in neither only with ``StatorMeta.logs``, if they logged something. ``version`` is the object's
    after the entry. For an attempt, ``claimed`` is when it was claimed, ``duration`` its seconds, and ``attempts`` its
    number in this state. ``stay`` is set for moves only.
    """

    # ``PartitionByTime`` divides the table by this column.
    PARTITION_COLUMN = "at"

    class Kind(models.TextChoices):
        """The kinds of events."""

        MOVE = "move"
        ERROR = "error"
        HAND = "hand", "by hand"
        EVENT = "event"
        WAIT = "wait"

    model_label = models.CharField(max_length=200)
    object_pk = models.CharField(max_length=KEY_LENGTH)
    at = MomentField(db_default=Now())
    version = models.BigIntegerField()
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.HAND)
    source = models.CharField(max_length=100)
    to = models.CharField(max_length=100, blank=True)
    actor = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    worker = models.CharField(max_length=32, blank=True)
    claimed = models.DateTimeField(null=True, blank=True, help_text="When the attempt was claimed.")
    duration = models.FloatField(null=True, blank=True, help_text="Seconds that the attempt took.")
    stay = models.FloatField(null=True, blank=True, help_text="Seconds in the state that was left.")
    attempts = models.IntegerField(default=0)
    error = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=16, blank=True)
    log = models.TextField(null=True, blank=True, help_text="What the attempt logged.")  # noqa: DJ001 - as above

    class Meta:
        verbose_name_plural = "history"
        indexes = [
            models.Index(fields=["model_label", "object_pk", "at"], name="stator_history_object"),
            models.Index(fields=["at"], name="stator_history_at"),
        ]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.source} -> {self.to}"


def reports_of(model: type[Model], using: str, **lookups: object) -> QuerySet[Report]:
    """Return the reports on the row of an outer query that match the lookups."""
    reports = Report.objects.using(using).filter(
        model_label=model._meta.label_lower, object_pk=key_text(model, using), **lookups
    )
    if not are_apart(model, using):
        return reports
    names = {lookup.partition("__")[0] for lookup in lookups}
    return read_first(reports, sorted({"model_label", "object_pk", "error", "fingerprint", *names}))


def fingerprint_of(using: str, model: type[Model]) -> Subquery:
    """Return the fingerprint of the latest error of the row of an outer query."""
    return Subquery(reports_of(model, using).exclude(error="").values("fingerprint")[:1])


_entries: StatementCache[Statement] = StatementCache()


def keep_entries(
    owner: type[Model], using: str, pks: Sequence[object], of_row: Mapping[str, object], given: Mapping[str, object]
) -> None:
    """Write a history entry for each of these locked rows; call it before they are changed.

    ``of_row``: expressions for columns, the state and the key apart. ``given``: values of columns.
    """
    key = key_values(owner, pks[0])
    values = {"model_label": owner._meta.label_lower, **given}
    own = {"object_pk": key_text(owner, using, F), "source": state_field(owner).named(), **of_row}
    rows: QuerySet[Model] = QuerySet(owner, using=using)

    def compiled(queryset: QuerySet[Model]) -> Statement:
        named = {name: Parameter(name, field_of(History, name)) for name in values}
        return inserting(queryset, History, named | own)

    if len(pks) > 1:
        statement = compiled(rows.filter(is_one_of(rows, pks)))
    else:
        # To compile it takes ten times as long as to send it. The zone is part of the text of a time.
        shape = owner, using, *of_row, *given, seconds_ahead(connections[using])
        statement = _entries.get(shape, lambda: compiled(rows.filter(**key_lookups(owner))))
    send(statement, using, {**values, **key})


def failure_report(
    label: str, pk: object, state: str, failure: Failure, worker: str, log: AttemptLog | None = None
) -> Report:
    """Return an unsaved report of an error."""
    return Report(
        model_label=label, object_pk=str(pk), state=state, error=failure.kind, message=failure.message,
        traceback=failure.traceback, fingerprint=failure.fingerprint, worker=worker, log=log.text if log else None,
    )  # fmt: skip


def keep_reports(using: str, label: str, reports: Iterable[Report]) -> None:
    """Save the latest report of each object, counting repetitions; call it while the claims on them are valid."""
    latest = {report.object_pk: report for report in reports}
    if not latest:
        return
    kept = Report.objects.using(using).filter(model_label=label, object_pk__in=latest)
    for object_pk, state, error, message, times in kept.values_list("object_pk", "state", "error", "message", "times"):
        report = latest[object_pk]
        if (state, error, message) == (report.state, report.error, report.message):
            report.times = times + 1
    Report.objects.using(using).bulk_create(
        latest.values(),
        update_conflicts=True,
        unique_fields=conflict_target(using, "model_label", "object_pk"),
        update_fields=["state", "at", "error", "message", "traceback", "fingerprint", "times", "worker", "log"],
    )


add_record_table(RecordTable(model=Report, aged="at", kept="errors", of_life=True, marked=False))
add_record_table(RecordTable(model=History, privileges=("SELECT", "INSERT"), aged="at", kept="history", outlives=True))
