"""OpenTelemetry spans of attempts, and of rows that are moved without one, with the setting ``TRACING``."""

from importlib import import_module
from typing import Any

from stator.conf import Settings
from stator.seams import Extension


def _spans(settings: Settings) -> Any:
    # Imported by name, because it needs a package that a project may not have.
    return import_module("stator.extensions.tracing.spans") if settings.TRACING else None


def _around(settings: Settings) -> Any:
    spans = _spans(settings)
    return spans and spans.tracer()


def _end(settings: Settings) -> None:
    if spans := _spans(settings):
        spans.flush()


EXTENSION = Extension(name="tracing", around=lambda settings, label, state: _around(settings), moves=_around, end=_end)
