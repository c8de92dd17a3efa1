"""The option ``shadow``: the states whose rows other code moves, while workers record what they would do."""

from collections.abc import Collection

from django.db.models import Model

from stator.graph.graphs import state_problem
from stator.graph.states import State
from stator.rows.left import leave
from stator.rows.meta import ModelOption, add_model_option, graph_of
from stator.rows.state_column import state_field


def in_shadow(model: type[Model]) -> frozenset[str]:
    """Return the names of the states of a model that are in shadow."""
    return state_field(model).left


def put_in_shadow(model: type[Model], states: Collection[State | str] | bool) -> None:
    """Put these states of a model into shadow in this process, or all of them, and all others out of it."""
    if isinstance(states, bool):
        leave(model, list(graph_of(model).states) if states else ())
    else:
        leave(model, [str(state) for state in states])


def _wrong(model: type[Model], value: object) -> str:
    if isinstance(value, bool):
        return ""
    if not isinstance(value, list | tuple | set | frozenset):
        return "must be True, or a list of states"
    return next(filter(None, (state_problem(graph_of(model), state) for state in value)), "")


add_model_option(ModelOption(name="shadow", wrong=_wrong, unset=False, prepare=put_in_shadow))
