"""Rows beside the rows: the latest error or reason of each object, moves, manual actions, and events."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models
from django.db.models import NOT_PROVIDED, F, Model, QuerySet, Value

from stator.graph.attempt_log import AttemptLog
from stator.graph.failures import Failure, bounded
from stator.graph.kept import Kept
from stator.graph.states import State
from stator.rows import columns
from stator.rows.clock import Now, Seconds, seconds_ahead
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH, key_lookups, key_text, key_values
from stator.rows.life import Life
from stator.rows.meta import owner_of
from stator.rows.state_column import state_field
from stator.scopes import are_apart, read_first
from stator.statements import Parameter, Statement, StatementCache, is_one_of, selecting, written

REASON_LENGTH = 500

# The length of the keys that identify a repeated event.
KEY_LENGTH_OF_EVENTS = 100

Record = TypeVar("Record", bound=Model)


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


# The ``version`` of a mark, in the table of events, that an object has left a state that takes an event.
LEFT = -1


class Events(models.Manager["Event"]):
    """Events, without the marks of states that objects have left."""

    def get_queryset(self) -> QuerySet["Event"]:
        """Return the events."""
        return super().get_queryset().exclude(version=LEFT)


class Event(models.Model):
    """An event that was sent to one object: ``name``, ``payload``, ``sender`` and ``at``.

    ``version``: the number of the visit that the event is of, so that handlers of the state that it led to find it. It
    is null while the event is kept, ``until`` when, for a state that the object has not entered. ``source``: the state
    that took it; ``to``: where it moved the object, empty if it did not. ``voter``: the sender, if the event takes
    several. ``life``: the object's life and wish when it came, see :class:`~stator.rows.life.Life`. Stored as long as
    the history, and while it is in force.
    """

    model_label = models.CharField(max_length=200)
    object_pk = models.CharField(max_length=KEY_LENGTH)
    name = models.CharField(max_length=100)
    payload = models.JSONField(null=True, blank=True, encoder=DjangoJSONEncoder)
    sender = models.CharField(max_length=150, blank=True)
    at = MomentField(db_default=Now())
    version = models.BigIntegerField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    source = models.CharField(max_length=100, blank=True)
    to = models.CharField(max_length=100, blank=True)
    key = models.CharField(max_length=KEY_LENGTH_OF_EVENTS, null=True, blank=True)  # noqa: DJ001 - null is unique beside null
    voter = models.CharField(max_length=150, null=True, blank=True)  # noqa: DJ001 - null is unique beside null
    life = models.BigIntegerField(default=0, db_default=0, editable=False)
    objects = Events()
    # Why it was sent; only the history stores that.
    reason = ""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["model_label", "object_pk", "key", "sender", "life"], name="stator_event_key_of_life"
            ),
            models.UniqueConstraint(
                fields=["model_label", "object_pk", "version", "name", "voter", "life"],
                name="stator_event_vote_of_wish",
            ),
        ]
        indexes = [models.Index(fields=["at"], name="stator_event_at")]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.name}"

    @property
    def described(self) -> str:
        """The name with the payload and the reason, for the history."""
        payload = "" if self.payload is None else f" {DjangoJSONEncoder(ensure_ascii=False).encode(self.payload)}"
        return bounded(f"{self.name}{payload}{': ' if self.reason else ''}{self.reason}", REASON_LENGTH)


def records_of(kind: type[Record], model: type[Model], pk: object, using: str) -> QuerySet[Record]:
    """Return the rows of one kind, such as ``History``, about one object of a managed model or of a child of it."""
    label = owner_of(model)._meta.label_lower
    return QuerySet(kind, using=using).filter(model_label=label, object_pk=str(pk))


def events_of(model: type[Model], using: str) -> QuerySet[Event]:
    """Return the events that were sent to objects of a model."""
    return Event.objects.using(using).filter(model_label=model._meta.label_lower)


# The latest event of an attempt's visit, and all of them; None if there are many, which are read when one asks.
LATEST = Kept[Event | None]("event", None)
HAPPENED = Kept[tuple[Event, ...] | None]("events", ())


def events_of_visit(model: type[Model], using: str, pk: object, life: Life) -> QuerySet[Event]:
    """Return the events of the present visit and wish of an object, oldest first."""
    return events_of(model, using).filter(life.of_wish, object_pk=str(pk), version=life.visit).order_by("pk")


def reports_of(model: type[Model], using: str, **lookups: object) -> QuerySet[Report]:
    """Return the reports on the row of an outer query that match the lookups."""
    reports = Report.objects.using(using).filter(
        model_label=model._meta.label_lower, object_pk=key_text(model, using), **lookups
    )
    if not are_apart(model, using):
        return reports
    names = {lookup.partition("__")[0] for lookup in lookups}
    return read_first(reports, sorted({"model_label", "object_pk", "error", "fingerprint", *names}))


# The rows are read and written by the server alone.
COPY = "INSERT INTO {table} ({columns}) {rows}"

_entries: StatementCache[Statement] = StatementCache()


def keep_entries(
    owner: type[Model], using: str, pks: Sequence[object], of_row: Mapping[str, Any], given: Mapping[str, object]
) -> None:
    """Write a history entry for each of these locked rows; call it before they are changed.

    ``of_row``: expressions for columns, the state and the key apart. ``given``: values of columns.
    """
    key = key_values(owner, pks[0])
    values = {"model_label": owner._meta.label_lower, **given}
    own = {"object_pk": key_text(owner, using, F), "source": state_field(owner).named(), **of_row}
    rows: QuerySet[Any] = QuerySet(owner, using=using)

    def compiled(found: QuerySet[Any]) -> Statement:
        named = {name: Parameter(name, History._meta.get_field(name)) for name in values}
        return inserting(found, History, named | own)

    if len(pks) > 1:
        statement = compiled(rows.filter(is_one_of(rows, pks)))
    else:
        # To compile it takes ten times as long as to send it. The zone is part of the text of a time.
        shape = owner, using, *of_row, *given, seconds_ahead(connections[using])
        statement = _entries.get(shape, lambda: compiled(rows.filter(**key_lookups(owner))))
    send(statement, using, {**values, **key})


def keep_moves(
    owner: type[Model], using: str, pks: Sequence[object], target: State, reason: str, kind: str,
    actor: str = "",
) -> None:  # fmt: skip
    """Write a history entry for the move of each of these locked rows; call it before they are moved."""
    moves = {"version": F("state_version") + 1, "stay": Seconds(columns.stayed())}
    attempts = {"attempts": F("state_attempts"), "claimed": F("state_attempted")}
    keep_entries(owner, using, pks, moves | attempts, {"to": target.name, **_told(actor, reason, kind)})


def keep_acts(
    owner: type[Model], using: str, pks: Sequence[object], actor: str, reason: str,
    kind: str = History.Kind.HAND,
) -> None:  # fmt: skip
    """Write a history entry for each of these locked rows, which somebody changes without a move."""
    keep_entries(owner, using, pks, {"version": F("state_version")}, _told(actor, reason, kind))


def _told(actor: str, reason: str, kind: str) -> dict[str, object]:
    return {"actor": actor[:150], "reason": reason[:REASON_LENGTH], "kind": str(kind)}


def inserting(rows: QuerySet[Any], into: type[Model], values: Mapping[str, Any]) -> Statement:
    """Return the INSERT of one row into another table for each of these rows.

    ``values``: expressions for its columns. Other columns get the default of their field.
    """
    fields: list[Any] = [field for field in into._meta.concrete_fields if not field.primary_key]
    # The database's own default would be in UTC, whatever the zone of the column is.
    defaults = {
        field.name: Value(field.get_default(), output_field=field)
        if field.db_default is NOT_PROVIDED
        else field.db_default
        for field in fields
        if field.name not in values
    }
    named: dict[str, Any] = {f"stator_{name}": value for name, value in {**defaults, **values}.items()}
    quote, columns = connections[str(rows.db)].ops.quote_name, {f"stator_{one.name}": str(one.column) for one in fields}
    return written(
        COPY,
        table=quote(into._meta.db_table),
        columns=", ".join(quote(columns[name]) for name in named),
        rows=selecting(rows.order_by().annotate(**named).values_list(*named)),
    )


def send(statement: Statement, using: str, values: Mapping[str, object]) -> None:
    """Send a statement that returns nothing."""
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(statement.text, statement.bind(connection, values))  # type: ignore[arg-type]


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


def conflict_target(using: str, *names: str) -> list[str] | None:
    """Return the ``unique_fields`` for a ``bulk_create`` that updates existing rows; MySQL takes none."""
    return list(names) if connections[using].features.supports_update_conflicts_with_target else None
