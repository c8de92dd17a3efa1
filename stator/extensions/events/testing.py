"""What tests do with events."""

from asgiref.sync import sync_to_async

from stator.draining import drain
from stator.extensions.events.events import Sent
from stator.models import StatorModel, home_of

__all__ = ["Sent", "asend", "send"]


def send(row: StatorModel, name: str, payload: object = None, *, by: object = None, key: str = "") -> Sent:
    """Send an event to a row, attempt what is ready then as :func:`drain` does, and refresh the row.

    Raises :class:`~stator.exceptions.EventRefused` if the row does not take it; then nothing is attempted.

    >>> send(expense, "reject", by="ben").outcome  # doctest: +SKIP
    'moved'
    """
    sent: Sent = row.stator.send(name, payload, by=by, key=key)
    drain(type(row))
    row.refresh_from_db(home_of(row))
    return sent


async def asend(row: StatorModel, name: str, payload: object = None, *, by: object = None, key: str = "") -> Sent:
    """Run :func:`send` in a thread, for async tests."""
    return await sync_to_async(send)(row, name, payload, by=by, key=key)
