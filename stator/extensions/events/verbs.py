"""The events of ``instance.stator``."""

from typing import TYPE_CHECKING

from django.db.models import Model, QuerySet

from stator.asynchronous import in_thread
from stator.extensions.events.answer_links import link_to
from stator.extensions.events.available import available_to
from stator.extensions.events.events import Sent, send, withdraw
from stator.extensions.events.models import LATEST, Event
from stator.rows.meta import home_of, owner_of
from stator.rows.rollbacks import remembered

if TYPE_CHECKING:
    from stator.models import StatorModel


class TakesEvents:
    """What ``instance.stator`` offers for events."""

    __slots__ = ()

    instance: "StatorModel"

    def send(self, name: str, payload: object = None, *, by: object = None, key: str = "", reason: str = "") -> Sent:
        """Send an event that the object waits for, in the caller's transaction; return what became of it.

        ``payload``: what the form of the event takes, or JSON values. ``by``: the user who sends it; anything else,
        such as the name of a program, becomes a :class:`~stator.Sender`. ``key``: at most 100 characters; an event with
        a key that its sender has used for the object is not taken again.
        ``reason``: stored in the history. Raises :class:`~stator.exceptions.EventRefused`. The instance shows its new
        state.
        """
        instance = self.instance
        using = home_of(instance)
        with remembered(using, [instance]):
            sent = send(type(instance), instance.pk, name, payload, by=by, key=key, reason=reason, using=using)
            if sent.outcome == "moved":
                instance.__dict__.pop("stator", None)
            instance._note_moved(using)
        return sent

    asend = in_thread(send)

    def withdraw(self, name: str, *, by: object, reason: str = "") -> Sent:
        """Take back an event that ``by`` has sent, in the caller's transaction, while further senders are missing.

        ``missing`` of the result is the number of senders it needs now. The history keeps both. Raises
        :class:`~stator.exceptions.EventRefused` if the sender has sent none, or the object has moved.
        """
        instance = self.instance
        return withdraw(type(instance), instance.pk, name, by=by, reason=reason, using=home_of(instance))

    awithdraw = in_thread(withdraw)

    def link(self, name: str, *, by: object, expires: float = 86400) -> str:
        """Return the path of a page under ``stator.urls`` on which ``by`` sends the event once, without an account.

        Whoever has the path is this sender, with the permission of the event; ``unless`` and ``count`` still apply. It
        is of no use after so many seconds, and once the object has moved, is deleted, or has another wish.
        """
        rows: QuerySet[Model] = QuerySet(owner_of(type(self.instance)), using=home_of(self.instance))
        return link_to(rows.get(pk=self.instance.pk), name, by, expires)

    alink = in_thread(link)

    def available(self, user: object) -> list[str]:
        """Return the names of the events that ``user`` may send to the object now, read from the database.

        They are the events of its state that the user has the permission for, that ``unless`` does not refuse, and that
        the user has not sent already if they take several senders. ``user``: as ``by`` of :meth:`send`.
        """
        instance = self.instance
        rows: QuerySet[Model] = QuerySet(owner_of(type(instance)), using=home_of(instance))
        return [event.name for events in available_to(user, rows.filter(pk=instance.pk)[:1]) for event in events]

    aavailable = in_thread(available)


class HasEvents:
    """What the claim on an object offers for events.

    ``event``: the latest event that the object got on its way into the state or in it, with ``name``, ``payload``,
    ``sender`` and ``at``; or None. ``events``: all of them, oldest first.
    """

    __slots__ = ()

    event = LATEST

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that the object got on its way into the state and in it, oldest first."""
        raise NotImplementedError
