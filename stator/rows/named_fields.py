"""The project's own fields by name, as options of a model name them."""

from django.core.exceptions import FieldDoesNotExist
from django.db.models import Field, Model

from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.state_column import state_field


def own_field(model: type[Model], name: object) -> Field | None:
    """Return the project's field with that name and a column; None if there is none."""
    if not isinstance(name, str) or name in (*FRAMEWORK_COLUMNS, state_field(model).name):
        return None
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field if isinstance(field, Field) and field.concrete else None
