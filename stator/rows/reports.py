"""Rows beside the rows: the latest error or reason of each object, moves, manual actions, and events sent to it."""

from collections.abc import Iterable

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models
from django.db.models import Expression, Model, OuterRef, QuerySet, Value
from django.db.models.functions import Cast, Concat, Substr

from stator.graph.failures import Failure, bounded
from stator.rows.clock import Now
from stator.rows.fields import MomentField

REASON_LENGTH = 500

# The length of primary keys as text; the index does not take text of unlimited length on every database.
KEY_LENGTH = 255

# The length of the keys by which a repeated event is recognized.
KEY_LENGTH_OF_EVENTS = 100


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

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model_label", "object_pk"], name="stator_report_one_per_object")
        ]
        indexes = [models.Index(fields=["at"], name="stator_report_at")]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.error or 'waits'}: {self.message[:80]}"


class History(models.Model):
    """One event in the life of one object: a move, an error, or a manual action.

    Manual actions are always stored; moves and errors only for models with ``StatorMeta.history``. ``version`` is the
    object's after the event. For an attempt, ``claimed`` is when it was claimed, ``duration`` its seconds, and
    ``attempts`` its number in this state. ``stay`` is set for moves only.
    """

    # The column by which ``PartitionByTime`` divides the table.
    PARTITION_COLUMN = "at"

    class Kind(models.TextChoices):
        """The kinds of events."""

        MOVE = "move"
        ERROR = "error"
        HAND = "hand", "by hand"

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

    class Meta:
        verbose_name_plural = "history"
        indexes = [
            models.Index(fields=["model_label", "object_pk", "at"], name="stator_history_object"),
            models.Index(fields=["at"], name="stator_history_at"),
        ]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.source} -> {self.to}"


class Event(models.Model):
    """An event that was sent to one object: ``name``, ``payload``, ``sender`` and ``at``.

    ``version``: the object's after the event, so that handlers of the state that it led to find it. It is null while
    the event is kept, ``until`` when, for a state that the object has not entered. ``voter``: the sender, if the event
    takes several. Stored as long as the history.
    """

    model_label = models.CharField(max_length=200)
    object_pk = models.CharField(max_length=KEY_LENGTH)
    name = models.CharField(max_length=100)
    payload = models.JSONField(null=True, blank=True, encoder=DjangoJSONEncoder)
    sender = models.CharField(max_length=150, blank=True)
    at = MomentField(db_default=Now())
    version = models.BigIntegerField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    key = models.CharField(max_length=KEY_LENGTH_OF_EVENTS, null=True, blank=True)  # noqa: DJ001 - null is unique beside null
    voter = models.CharField(max_length=150, null=True, blank=True)  # noqa: DJ001 - null is unique beside null

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model_label", "object_pk", "key"], name="stator_event_key"),
            models.UniqueConstraint(
                fields=["model_label", "object_pk", "version", "name", "voter"], name="stator_event_voter"
            ),
        ]
        indexes = [models.Index(fields=["at"], name="stator_event_at")]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.name}"

    @property
    def described(self) -> str:
        """The name with the payload, for the history."""
        payload = "" if self.payload is None else f" {DjangoJSONEncoder(ensure_ascii=False).encode(self.payload)}"
        return bounded(f"{self.name}{payload}", REASON_LENGTH)


def events_of(model: type[Model], using: str) -> QuerySet[Event]:
    """Return the events that were sent to objects of a model."""
    return Event.objects.using(using).filter(model_label=model._meta.label_lower)


def reports_of(model: type[Model], using: str, **lookups: object) -> QuerySet[Report]:
    """Return the reports on the row of an outer query that match the lookups."""
    return Report.objects.using(using).filter(
        model_label=model._meta.label_lower, object_pk=_pk_text(model, using), **lookups
    )


def _pk_text(model: type[Model], using: str) -> Expression:
    """Return an expression for the primary key as reports store it."""
    text = Cast(OuterRef("pk"), models.CharField(max_length=KEY_LENGTH))
    pk = model._meta.pk
    kept = getattr(pk, "target_field", pk)
    if not isinstance(kept, models.UUIDField) or connections[using].features.has_native_uuid_field:
        return text
    # Stored as 32 digits without hyphens.
    dash = Value("-")
    parts = [Substr(text, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    return Concat(parts[0], *(part for tail in parts[1:] for part in (dash, tail)))


def failure_report(label: str, pk: object, state: str, failure: Failure, worker: str) -> Report:
    """Return an unsaved report of an error."""
    return Report(
        model_label=label, object_pk=str(pk), state=state, error=failure.kind, message=failure.message,
        traceback=failure.traceback, fingerprint=failure.fingerprint, worker=worker,
    )  # fmt: skip


def reason_report(label: str, pk: object, state: str, reason: str, worker: str) -> Report:
    """Return an unsaved report of a reason to wait."""
    return Report(
        model_label=label, object_pk=str(pk), state=state, message=bounded(str(reason), REASON_LENGTH), worker=worker
    )


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
        update_fields=["state", "at", "error", "message", "traceback", "fingerprint", "times", "worker"],
    )


def conflict_target(using: str, *names: str) -> list[str] | None:
    """Return the ``unique_fields`` for a ``bulk_create`` that updates existing rows; MySQL takes none."""
    return list(names) if connections[using].features.supports_update_conflicts_with_target else None
