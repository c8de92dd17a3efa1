"""OpenTelemetry spans of attempts, and of rows that are moved without one, with the setting ``TRACING``."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stator.conf import WRONG, Settings
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


def connect() -> None:
    """Refuse the setting where the package is not installed."""
    WRONG.append(_wrong)


def _wrong(settings: Settings) -> Iterator[str]:
    if settings.TRACING is True and not _is_installed():
        yield "TRACING needs opentelemetry-api, which is not installed; pip install 'django-stator[tracing]'"


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.trace") is not None
    except ModuleNotFoundError:
        return False


EXTENSION = Extension(
    name="tracing",
    connect=("stator.extensions.tracing.connect",),
    around=lambda settings, label, state: _around(settings),
    moves=_around,
    end=_end,
)
