"""The table of events."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Model, QuerySet

from stator.graph.failures import bounded
from stator.graph.kept import Kept
from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH
from stator.rows.life import Life
from stator.rows.meta import graph_of
from stator.rows.record_tables import RecordTable, add_record_table
from stator.rows.records import REASON_LENGTH

# The length of the keys that identify a repeated event.
EVENT_KEY_LENGTH = 100

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
    key = models.CharField(max_length=EVENT_KEY_LENGTH, null=True, blank=True)  # noqa: DJ001 - null is unique beside null
    voter = models.CharField(max_length=150, null=True, blank=True)  # noqa: DJ001 - null is unique beside null
    life = models.BigIntegerField(default=0, db_default=0, editable=False)
    objects = Events()
    # Why it was sent; only the history stores that.
    reason = ""

    class Meta:
        app_label = "stator"
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


def events_of(model: type[Model], using: str) -> QuerySet[Event]:
    """Return the events that were sent to objects of a model."""
    return Event.objects.using(using).filter(model_label=model._meta.label_lower)


# The latest event of an attempt's visit, and all of them; None if there are many, which are read when one asks.
LATEST = Kept[Event | None]("event", None)
HAPPENED = Kept[tuple[Event, ...] | None]("events", ())


def events_of_visit(model: type[Model], using: str, pk: object, life: Life) -> QuerySet[Event]:
    """Return the events of the present visit and wish of an object, oldest first."""
    return events_of(model, using).filter(life.of_wish, object_pk=str(pk), version=life.visit).order_by("pk")


def _sent_since(model: type[Model], using: str, keys: list[str], moment: object) -> dict[str, str]:
    """Return the objects to which an event was sent after a moment, which an undo leaves alone."""
    if not graph_of(model).event_names:
        return {}
    sent = events_of(model, using).filter(object_pk__in=keys, at__gt=moment)
    return dict.fromkeys(sent.values_list("object_pk", flat=True), "got an event since")


add_record_table(
    RecordTable(
        model=Event,
        kept="history",
        of_life=True,
        sweep="stator.extensions.events.follower.OLD_EVENTS",
        since=_sent_since,
    )
)
