"""Inserts of several tasks whose keys are needed afterwards."""

from collections.abc import Sequence

from django.db import connections, transaction
from django.db.models import Model

# Rows of one statement.
BATCH = 500


def insert_with_keys(rows: Sequence[Model], using: str) -> None:
    """Insert new instances of one model and set their keys.

    MySQL does not return the keys of several rows, so each row there is a statement of its own.
    """
    if not rows:
        return
    if connections[using].features.can_return_rows_from_bulk_insert:
        type(rows[0])._default_manager.using(using).bulk_create(rows, batch_size=BATCH)
        return
    with transaction.atomic(using=using):
        for row in rows:
            row.save(force_insert=True, using=using)
