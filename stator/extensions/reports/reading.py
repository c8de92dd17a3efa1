"""The history of an object as one list: the table of the history, and the attempts that the app keeps itself."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from django.db.models import Model

from stator.extensions.reports.models import History
from stator.rows.kept_attempts import KeptAttempt, attempts_of
from stator.rows.meta import owner_of
from stator.rows.records import records_of


def history_of(model: type[Model], pk: object, using: str, most: int) -> list[History]:
    """Return at most so many entries about an object of a managed model, the latest first.

    Entries of attempts that the app keeps have no primary key. An attempt is in the table or with the app, never both.
    """
    stored = list(records_of(History, model, pk, using).order_by("-at", "-pk")[:most])
    kept = attempts_of(owner_of(model))
    return merged(model, stored, kept.of_object(pk, using, most), most) if kept else stored


def merged(model: type[Model], stored: Sequence[History], kept: Iterable[KeptAttempt], most: int) -> list[History]:
    """Return the latest of stored entries and of attempts that the app keeps, by time."""
    label = owner_of(model)._meta.label_lower
    entries = [History(model_label=label, kind=_kind(attempt), **asdict(attempt)) for attempt in kept]
    return sorted([*stored, *entries], key=_place, reverse=True)[:most]


def _kind(attempt: KeptAttempt) -> History.Kind:
    return History.Kind.MOVE if attempt.to else History.Kind.ERROR


def _place(entry: History) -> tuple[object, int]:
    return entry.at, entry.version
