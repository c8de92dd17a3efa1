"""Readings: what extensions have stored of objects, for pages, commands and sentences that show it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model


@dataclass(frozen=True, slots=True)
class Reading:
    """``of(using, ...)`` reads it from ``model``, the table that has most of it."""

    model: type[Model]
    of: Callable[..., Any]


# By name; extensions add theirs when the app is ready. What nobody has stored is not shown.
READINGS: dict[str, Reading] = {}


def read(name: str, using: str | None, *given: object, otherwise: object) -> Any:
    """Return what a reading finds; ``otherwise`` if no extension has one with that name."""
    reading = READINGS.get(name)
    return otherwise if reading is None else reading.of(using, *given)
