"""What changed in the last hour without an attempt: manual actions, and deletions by retentions."""

from collections.abc import Iterable
from typing import Any

from django.db.models import F, Model

from stator.graph.durations import seconds_of, span
from stator.overview.looks import Looks
from stator.rows.actions import Action
from stator.rows.clock import Now, moment_text
from stator.rows.deletions import Deleted
from stator.rows.meta import model_of
from stator.rows.record_tables import RECORD_TABLES
from stator.texts import counted
from stator.undo import undoable

# The most actions that are shown.
ACTIONS = 20

HEADS = ("What", "Objects", "Model", "By", "When")


def deletions(models: Iterable[type[Model]], looks: Looks) -> list[Deleted]:
    """Return what retentions have deleted of these models and of the framework's own tables, most first."""
    labels = [model._meta.label_lower for model in (*models, *(table.model for table in RECORD_TABLES))]
    deleted: list[Deleted] = looks.of("deletions", labels, otherwise=[])
    return deleted


def deletion_text(one: Deleted) -> str:
    """Return a deletion as a line: ``5,000 objects of shop.Order deleted since ...: delete_after of done``."""
    return (
        f"{counted(one.count, 'object')} of {label_of(one.label)} deleted since {moment_text(one.since)}: "
        f"{one.retention}"
    )


def actions(models: Iterable[type[Model]], looks: Looks) -> list[Any]:
    """Return the manual actions of the last hour on these models, the latest first, each with its ``age``."""
    labels = [model._meta.label_lower for model in models]
    rows = undoable(looks.using).filter(model_label__in=labels).annotate(age=Now() - F("at"))
    latest: list[object] = looks.at(Action, lambda: list(rows[:ACTIONS]), [])
    return latest


def rows_of(done: Iterable[Any], deleted: Iterable[Deleted]) -> list[tuple[str, ...]]:
    """Return lines of a table under ``HEADS``."""
    by_hand = [
        (
            f"undo of {one.undoes}" if one.undoes else one.kind, f"{one.count:,}", label_of(one.model_label),
            f"{one.actor or 'a program'}{f': {one.reason}' if one.reason else ''}", f"{span(seconds_of(one.age))} ago",
        )
        for one in done
    ]  # fmt: skip
    by_retention = [
        ("deleted", f"{one.count:,}", label_of(one.label), str(one.retention), f"since {moment_text(one.since)}")
        for one in deleted
    ]
    return [*by_hand, *by_retention]


def label_of(label: str) -> str:
    """Return the label of a model as people write it, from the stored one."""
    model = model_of(label)
    return str(model._meta.label) if model else label
