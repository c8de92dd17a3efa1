"""What querysets of a managed model do when they write its watched fields."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from stator.extensions.reconcile.watched import move_with_new_values, note, update_and_look_again, watched_fields
from stator.rows.meta import M
from stator.rows.rollbacks import remembered
from stator.rows.state_column import state_field


class ReconcilingQuerySet(QuerySet[M]):
    """Reconciles the rows whose watched fields change."""

    def update(self, **values: Any) -> int:
        """Update like Django; if a field of ``reconcile_on`` changes, its rows are reconciled."""
        watched = watched_fields(self.model, values) if hasattr(self.model, "state_graph") else []
        if not watched or (field := state_field(self.model)).is_left:
            return super().update(**values)
        if field.name not in values:
            return update_and_look_again(self, values, watched)
        if hasattr(values[field.name], "resolve_expression"):
            return super().update(**values)
        return move_with_new_values(self, values.pop(field.name), values, watched)

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_update(self, objs: Iterable[M], fields: Iterable[str], batch_size: int | None = None) -> int:
        """Update like Django, and note in the objects what was written, so that a later ``save()`` is no change."""
        written, fields = tuple(objs), tuple(fields)
        updated = super().bulk_update(written, fields, batch_size)
        if hasattr(self.model, "state_graph"):
            with remembered(self.db, written, ["_loaded_watched"]):
                for instance in written:
                    note(instance, fields)
        return updated

    bulk_update.alters_data = True  # type: ignore[attr-defined]
