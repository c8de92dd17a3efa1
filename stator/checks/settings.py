"""Checks of the ``STATOR`` settings."""

from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches

from django.conf import settings as django_settings
from django.core import checks

from stator.checks.messages import message
from stator.conf import LEGACY, CheckedSettings, Settings, read_settings


def check_settings() -> Iterator[checks.CheckMessage]:
    """E001: a setting that cannot work, or two that conflict. W002: one with another meaning in Takahe's Stator.

    W005: one that nothing reads, because its name is wrong. W006: one that is gone.
    """
    yield from _check_names()
    yield from _check_gone()
    settings, problems = read_settings()
    yield from Settings.errors(problems, "stator.E001")
    most = getattr(django_settings, "STATOR_CONCURRENCY_PER_MODEL", None)
    if not problems and most and settings.CONCURRENCY_PER_MODEL == most < settings.CONCURRENCY:
        text = f"STATOR_CONCURRENCY_PER_MODEL={most} limits how many objects of a model are attempted at once."
        instead = f"STATOR = {{'CONCURRENCY_PER_MODEL': {most}}}"
        hint = f"In Takahe's Stator it limited one fetch. Remove it, or if you want the limit write {instead}."
        yield message("W002", text, hint)


def _check_gone() -> Iterator[checks.CheckMessage]:
    for kind in CheckedSettings.__subclasses__():
        given = kind.given()
        for name, instead in kind.GONE.items() if isinstance(given, dict) else ():
            if name in given:
                hint = f"{instead}, and remove the setting. See 'Upgrade to a new version'."
                yield message("W006", f"{kind.NAME}[{name!r}] is gone: nothing reads it.", hint)


def _check_names() -> Iterator[checks.CheckMessage]:
    kinds = CheckedSettings.__subclasses__()
    known = {kind.NAME for kind in kinds}
    inside = {f"{kind.NAME}_{option.name}": kind for kind in kinds for option in fields(kind)}
    for name in sorted(filter(str.isupper, dir(django_settings))):
        if name in known or name in LEGACY.values() or not name.startswith(Settings.NAME):
            continue
        if name in inside:
            of = inside[name].NAME
            meant = f"Write {of} = {{{name.removeprefix(f'{of}_')!r}: ...}}."
        elif close := get_close_matches(name, known, 1, cutoff=0.9):
            meant = f"Did you mean {close[0]}?"
        else:
            # A setting of the project's own.
            continue
        yield message("W005", f"Nothing reads the setting {name}.", meant)
