"""What can be wrong with a managed model: its state field, its primary key, its indexes."""

from collections.abc import Iterator
from typing import Any

from django.core import checks
from django.core.exceptions import FieldDoesNotExist

from stator.fields import StateField
from stator.indexes import own_indexes
from stator.moves import owner_of


def check_model(model: Any) -> Iterator[checks.CheckMessage]:
    """Everything that is wrong with one subclass of StatorModel."""
    yield from check_state_field(model)
    yield from check_primary_key(model)
    yield from check_indexes(model)


def check_state_field(model: Any) -> Iterator[checks.CheckMessage]:
    """E101: no worker can attempt rows without a state."""
    field = _state_field(model)
    if isinstance(field, StateField):
        return
    wrong = "has no field named state" if field is None else f"has a state that is a {type(field).__name__}"
    yield checks.Error(
        f"{model.__name__} inherits StatorModel and {wrong}.",
        hint="Add state = StateField(YourGraph), or inherit models.Model.",
        obj=model,
        id="stator.E101",
    )


def check_primary_key(model: Any) -> Iterator[checks.CheckMessage]:
    """E102: claims name rows by one column."""
    if not model._meta.pk.concrete or getattr(model._meta, "is_composite_pk", False):
        yield checks.Error(
            f"{model.__name__} has a composite primary key; workers tell rows by a primary key of one column.",
            hint="Give it a primary key of one column, and a UniqueConstraint over the others.",
            obj=model,
            id="stator.E102",
        )


def check_indexes(model: Any) -> Iterator[checks.CheckMessage]:
    """W103: without its indexes a model is scanned once a second by each worker."""
    if _state_field(model) is None or owner_of(model) is not model:
        return
    present = {index.name for index in model._meta.indexes}
    if missing := [index.name for index in own_indexes(model) if index.name not in present]:
        yield checks.Warning(
            f"{model.__name__} has lost the indexes {', '.join(missing)}.",
            hint="Do not assign to _meta.indexes; declare indexes of your own in Meta.indexes, ours are added to them.",
            obj=model,
            id="stator.W103",
        )


def _state_field(model: Any) -> Any:
    try:
        return model._meta.get_field("state")
    except FieldDoesNotExist:
        return None
