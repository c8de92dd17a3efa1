"""Checks of the ``STATOR`` settings."""

from collections.abc import Iterator

from django.conf import settings as django_settings
from django.core import checks

from stator.checks.messages import message
from stator.conf import Settings, read_settings


def check_settings() -> Iterator[checks.CheckMessage]:
    """E001: a setting that cannot work, or two that conflict. W002: one with another meaning in Takahe's Stator."""
    settings, problems = read_settings()
    yield from Settings.errors(problems, "stator.E001")
    most = getattr(django_settings, "STATOR_CONCURRENCY_PER_MODEL", None)
    if not problems and most and settings.CONCURRENCY_PER_MODEL == most < settings.CONCURRENCY:
        text = f"STATOR_CONCURRENCY_PER_MODEL={most} limits how many objects of a model are attempted at once."
        instead = f"STATOR = {{'CONCURRENCY_PER_MODEL': {most}}}"
        hint = f"In Takahe's Stator it limited one fetch. Remove it, or if you want the limit write {instead}."
        yield message("W002", text, hint)
