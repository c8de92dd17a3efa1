"""Prospects: why due objects are not attempted, by the reasons of ``explain``."""

from typing import Any

from django.db.models import Model, QuerySet

from stator.explain.kinds import kind_of
from stator.explain.reasons import explain_counts
from stator.rows.meta import owner_of, written_to
from stator.texts import counted

# How many objects are checked; a message needs no more.
LOOKED_AT = 1000


def looked_at(rows: QuerySet[Any]) -> list[object]:
    """Return the keys of the first rows, to be asked for before an action that changes what a filter finds."""
    return list(rows.order_by("pk").values_list("pk", flat=True)[:LOOKED_AT])


def prospects(rows: QuerySet[Any], pks: list[object], count: int) -> str:
    """Return a sentence that says why the named objects are not attempted; empty if nothing prevents it.

    ``rows``: any queryset of the model and database. ``count``: how many were made due.
    """
    owner: type[Model] = owner_of(rows.model)
    found: QuerySet[Any] = QuerySet(owner, using=written_to(rows)).filter(pk__in=pks)
    if count == 1 and len(pks) == 1:
        return _of_one(found)
    numbers = [(kind_of(code).keeps, number) for code, number in explain_counts(found).items()]
    kept = [(phrase, number) for phrase, number in numbers if phrase]
    if not count or not kept:
        return ""
    parts = ", ".join(f"{number:,} {phrase}" for phrase, number in kept)
    of = f" of the {counted(len(pks), 'object')} looked at" if len(pks) < count else ""
    total = sum(number for _, number in kept)
    return f"{total:,}{of} {'is' if total == 1 else 'are'} not attempted yet: {parts}."


def _of_one(found: QuerySet[Any]) -> str:
    """Return the first reason of one object that keeps it, and what to do about it."""
    for row in found:
        for reason in row.explain():
            if kind_of(reason.code).keeps:
                return f"It is not attempted yet: {reason.sentence} {reason.remedy}".strip()
    return ""
