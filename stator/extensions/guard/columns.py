"""The guard on the framework's columns: no manager or queryset of a managed model writes them directly."""

from collections.abc import Sequence

from django.db.models import Field, QuerySet

from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.managers import refuse
from stator.rows.meta import M
from stator.rows.state_column import state_field


class GuardedQuerySet(QuerySet[M]):
    """Refuses to write the framework's columns; transitions write them."""

    def update(self, **values: object) -> int:
        """Update like Django; columns of the framework are refused."""
        if hasattr(self.model, "state_graph"):
            refuse(self.model, values.keys() & FRAMEWORK_COLUMNS)
        return super().update(**values)

    update.alters_data = True  # type: ignore[attr-defined]

    def _check_bulk_create_options(
        self,
        ignore_conflicts: bool,
        update_conflicts: bool,
        update_fields: Sequence[Field] | None,
        unique_fields: Sequence[Field] | None,
    ) -> object:
        """Refuse conflicts that would overwrite the framework's columns."""
        if hasattr(self.model, "state_graph"):
            state = state_field(self.model)
            kept = FRAMEWORK_COLUMNS if state.is_left else {*FRAMEWORK_COLUMNS, state.name}
            refuse(self.model, {field.name for field in update_fields or ()} & kept)
        return super()._check_bulk_create_options(  # type: ignore[misc]
            ignore_conflicts, update_conflicts, update_fields, unique_fields
        )
