"""What is wrong with ``StatorMeta.waits_for``, as far as the table of the model shows."""

from collections.abc import Iterator

from django.db.models import Model

from stator.graph.states import State
from stator.rows.named_fields import own_field
from stator.rows.state_column import state_field


def wrong_waits(model: type[Model], value: object) -> str:
    """Return what is wrong with the option; empty if nothing is."""
    if not isinstance(value, dict) or not value:
        return "must map names of relations to lists of states"
    return next((trouble for wait in value.items() for trouble in _troubles(model, *wait)), "")


def _troubles(model: type[Model], name: object, states: object) -> Iterator[str]:
    """Yield what is wrong with an awaited relation, as far as its own table shows."""
    field = own_field(model, name)
    if field is None or not (field.many_to_one or field.one_to_one):
        yield f"names {name!r}, which is not a ForeignKey or OneToOneField"
    elif field.model is not state_field(model).model:
        yield f"names {name!r}, which is in the table of {field.model.__name__}; it must be in the table with the state"
    if not isinstance(states, list | tuple) or not states:
        yield f"must have a list of states for {name!r}"
    elif not all(isinstance(state, State | str) for state in states):
        yield f"has a value for {name!r} that is not a state"
