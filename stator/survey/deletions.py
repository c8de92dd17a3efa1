"""What retentions have deleted in the last hour."""

from collections.abc import Iterable

from django.db.models import Model

from stator.rows.clock import moment_text
from stator.rows.deletions import Deleted
from stator.rows.meta import model_of
from stator.rows.record_tables import RECORD_TABLES
from stator.survey.looks import Looks
from stator.texts import counted


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


def label_of(label: str) -> str:
    """Return the label of a model as people write it, from the stored one."""
    model = model_of(label)
    return str(model._meta.label) if model else label
