"""Consumers: programs that use the HTTP API, each with a token, its queues and what it may do with them."""

import re
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, cast

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from stator.models import MomentField, Now, StatorModel
from tasks.datetimes import moment_problem

if TYPE_CHECKING:
    from tasks.models import Queue

PREFIX_BYTES, SECRET_BYTES = 6, 32
TOKEN = re.compile(r"tk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
# The name is written to logs and terminals.
NAME = RegexValidator(r"\A\w[\w .:@/+-]*\Z", "Letters, digits, and . : @ / + - _ or a space between them.")

# The digest to compare with if there is no such consumer, so that the check takes equally long.
NOBODY = sha256(secrets.token_bytes(SECRET_BYTES)).hexdigest()


class Verb(models.TextChoices):
    """The permissions of a token."""

    PUBLISH = "publish"
    CLAIM = "claim"
    QUERY = "query"
    CONFIGURE = "configure"


class ConsumerQuerySet(models.QuerySet["Consumer"]):
    """Queries for consumers."""

    def usable(self) -> "ConsumerQuerySet":
        """Return consumers that are enabled and have not expired by the database's clock."""
        return self.filter(Q(expires=None) | Q(expires__gt=Now()), enabled=True)


class Consumer(models.Model):
    """A program with a token.

    Only a hash of the token is stored. The token is shown once, when it is made, and begins with the public ``prefix``.
    Without ``all_queues`` it gives access to ``queues`` only. If ``requests_per_minute`` or ``rows_per_minute``
    (published rows of tasks) is empty, the setting applies.
    """

    name = models.CharField(max_length=100, unique=True, validators=[NAME])
    all_queues = models.BooleanField(default=False, help_text="Also those made later; needed to create queues.")
    queues = models.ManyToManyField("tasks.Queue", blank=True, related_name="consumers")
    may_publish = models.BooleanField(default=False)
    may_claim = models.BooleanField(default=False)
    may_query = models.BooleanField(default=False)
    may_configure = models.BooleanField(default=False)
    managed_objects = models.JSONField(
        default=dict, blank=True, help_text='The events that it may send to managed objects, such as {"shop.order": '
        '["approve"]}; it sees the objects of each named model, also with an empty list.',
    )  # fmt: skip
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    rows_per_minute = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    enabled = models.BooleanField(default=True)
    expires = models.DateTimeField(null=True, blank=True)
    prefix = models.CharField(max_length=12, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    # The minute of its latest request, and the requests and rows that processes have reserved since it began.
    used_minute = models.DateTimeField(null=True, editable=False)
    used_count = models.PositiveIntegerField(default=0, editable=False)
    used_rows = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    created = MomentField(db_default=Now(), editable=False)

    # Set by the page that has just made it.
    shown_token: str

    objects: ClassVar[ConsumerQuerySet] = cast(ConsumerQuerySet, ConsumerQuerySet.as_manager())

    # What a request has read together with the consumer.
    looked_up: object

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse an expiry that cannot be stored."""
        if problem := moment_problem(self.expires):
            raise ValidationError({"expires": problem})
        if problem := _objects_problem(self.managed_objects):
            raise ValidationError({"managed_objects": problem})

    @property
    def verbs(self) -> list[str]:
        """Return the verbs that the consumer may use."""
        return [verb.value for verb in Verb if self.may(verb)]

    def may(self, verb: str) -> bool:
        """Return whether the consumer may use this verb."""
        return bool(getattr(self, f"may_{verb}"))

    def may_see(self, label: str) -> bool:
        """Return whether the consumer may see the objects of a managed model."""
        return label.lower() in self.managed_objects

    def may_send(self, label: str, event: str) -> bool:
        """Return whether the consumer may send an event to the objects of a managed model."""
        return event in self.managed_objects.get(label.lower(), [])

    def reach(self) -> "models.QuerySet[Queue]":
        """Return the queues that the consumer may use."""
        if self.all_queues:
            return self.queues.model._default_manager.all()
        return self.queues.all()

    def issue(self) -> str:
        """Issue a new token and return it; it is stored nowhere. The previous token ends when the consumer is saved."""
        prefix = secrets.token_hex(PREFIX_BYTES)
        token = f"tk_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
        self.prefix, self.digest = prefix, _digest(token)
        return token


def _objects_problem(named: object) -> str:
    """Return what is wrong with the managed objects of a consumer; empty if nothing is."""
    if not isinstance(named, dict):
        return 'a dictionary of labels, each with a list of events: {"shop.order": ["approve"]}'
    models = {model._meta.label_lower: model for model in StatorModel.subclasses}
    for label, events in named.items():
        if label not in models:
            return f"{label!r} is not the label of a managed model, in lower case"
        # A graph has the names only if the extension of events is there.
        known = getattr(models[label].state_graph, "event_names", ())
        if not isinstance(events, list) or any(event not in known for event in events):
            return f"{label}: {events!r} must be a list of its events: {', '.join(known) or 'it has none'}"
    return ""


def prefix_of(token: str) -> str:
    """Return the public prefix of a token; "" if it has not the form of one."""
    form = TOKEN.fullmatch(token)
    return form[1] if form else ""


def is_of(consumer: Consumer | None, token: str) -> bool:
    """Return whether this is the consumer's token; it takes equally long if there is none."""
    return secrets.compare_digest(_digest(token), consumer.digest if consumer else NOBODY)


def _digest(token: str) -> str:
    # A fast hash is enough: 32 random bytes cannot be guessed, and a slow hash would cost every request.
    return sha256(token.encode(errors="replace")).hexdigest()
