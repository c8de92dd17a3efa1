"""Attempts whose history is in records of their app, so that the end of an attempt is not written twice."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from django.db.models import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAttempt:
    """The end of one attempt that moved its object or failed: what the framework's history would have of it.

    Its fields are columns of ``History``. ``object_pk``: the text of the object's key.
    """

    object_pk: str
    at: datetime
    version: int
    source: str
    to: str
    worker: str
    claimed: datetime | None
    duration: float | None
    stay: float | None
    attempts: int
    error: str
    fingerprint: str


class KeptStay(NamedTuple):
    """A move by an attempt: when, from which state, and the seconds of the stay and of the attempt; None: unknown."""

    at: datetime
    source: str
    stay: float
    duration: float | None
    attempts: int


class KeptAttempts(Protocol):
    """What an app has of the attempts of one model, if it keeps them itself.

    Its effects and its followers write each attempt that moves its object, fails, or loses its lease, in the
    transaction that does so. Then the framework's history has only the rest: acts by hand, events, and moves without
    a handler.
    """

    def of_object(self, pk: object, using: str, most: int) -> Iterable[KeptAttempt]:
        """Return the latest attempts of an object, the latest first."""
        ...

    def latest_moves(self, using: str, seconds: float, most: int) -> Iterable[KeptStay]:
        """Return the moves of the last ``seconds`` among so many latest attempts of all objects, the latest first."""
        ...


# By model; apps add theirs when they are ready.
_kept: dict[type[Model], KeptAttempts] = {}


def keep_attempts(model: type[Model], attempts: KeptAttempts) -> None:
    """Say that the app of a model keeps its attempts."""
    _kept[model] = attempts


def attempts_of(model: type[Model]) -> KeptAttempts | None:
    """Return where the app of a model keeps its attempts; None if the table of the history has them."""
    return _kept.get(model)
