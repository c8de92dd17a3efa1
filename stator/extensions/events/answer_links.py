"""Links by which people without an account answer: signed, for one event, one sender and one visit of an object."""

import secrets
import time
from dataclasses import dataclass

from django.core import signing
from django.db.models import Model, QuerySet
from django.urls import NoReverseMatch, reverse

from stator.exceptions import EventRefused
from stator.extensions.events.edges import AwaitedEvent
from stator.extensions.events.events import Sent, name_of, send
from stator.extensions.events.models import events_of
from stator.extensions.events.senders import Sender, sender_of
from stator.graph.options import is_seconds
from stator.rows.keys import key_of
from stator.rows.life import life_of
from stator.rows.meta import model_of, owner_of
from stator.rows.state_column import state_name, state_of

SALT = "stator.answer"


@dataclass(frozen=True, slots=True)
class AnswerLink:
    """What a link is for. ``number``: the key of its event, so that it is used once; ``until``: seconds since 1970.

    ``using``: the alias of the object's database, which the page cannot learn from the key.
    """

    using: str
    label: str
    pk: str
    life: int
    visit: int
    event: str
    sender: str
    number: str
    until: int

    @property
    def _rows(self) -> QuerySet[Model]:
        model = model_of(self.label)
        if model is None:
            raise EventRefused("there are no such objects any more")
        owner = owner_of(model)
        return QuerySet(owner, using=self.using).filter(pk=key_of(owner, self.pk))

    def asked(self) -> tuple[Model, AwaitedEvent]:
        """Return the object and its event; raise ``EventRefused`` if the link is used or over."""
        if time.time() > self.until:
            raise EventRefused("this link has expired")
        row = self._rows.first()
        if row is None:
            raise EventRefused("what this link was for is deleted")
        if events_of(type(row), str(row._state.db)).filter(object_pk=self.pk, key=self.number).exists():
            raise EventRefused("this link has been used")
        state, life = state_of(row), life_of(row)
        event = state.events.get(self.event) if state else None
        if event is None or (life.number, life.visit) != (self.life, self.visit):
            raise EventRefused("this answer is not needed any more")
        return row, event

    def give(self, payload: object) -> Sent:
        """Send the event under the name of the link's sender, who has its permission."""
        row, _ = self.asked()
        sent = send(
            type(row), row.pk, self.event, payload, by=Sender(self.sender, permitted=True), key=self.number,
            reason="by link", using=row._state.db, visit=(self.life, self.visit),
        )  # fmt: skip
        if sent.outcome == "repeated":
            raise EventRefused("this link has been used")
        return sent


def link_to(row: Model, name: str, by: object, expires: float) -> str:
    """Return the path of a link by which a sender answers for an object as it is in the database."""
    sender, state = name_of(sender_of(by)), state_of(row)
    if state is None or name not in state.events:
        raise EventRefused(f"{row._meta.label} {row.pk} is in {state_name(row)}, and does not take {name!r} there")
    if not sender:
        raise ValueError(f"a link is for one sender; pass by=, not {by!r}")
    if not is_seconds(expires):
        raise ValueError(f"expires={expires!r} must be a number of seconds above 0")
    life, label = life_of(row), owner_of(type(row))._meta.label_lower
    number, until = f"link:{secrets.token_hex(16)}", int(time.time() + expires)
    values = [row._state.db, label, str(row.pk), life.number, life.visit, name, sender, number, until]
    try:
        return reverse("stator:answer", args=[signing.dumps(values, salt=SALT)])
    except NoReverseMatch:
        raise ValueError('links need path("...", include("stator.urls")) in the URLs of the site') from None


def are_served() -> bool:
    """Return whether the URLs of the site have the page of links."""
    try:
        return bool(reverse("stator:answer", args=["token"]))
    except NoReverseMatch:
        return False


def answer_of(token: str) -> AnswerLink | None:
    """Return what a link is for; None if it was not signed here, or by a version whose links say something else."""
    try:
        return AnswerLink(*signing.loads(token, salt=SALT))
    except (signing.BadSignature, TypeError):
        return None
