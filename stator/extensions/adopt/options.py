"""The option ``adopts``: which rows of a table that gets a state are in which."""

from django.db.models import Model, Q

from stator.graph.graphs import state_problem
from stator.rows.meta import ModelOption, add_model_option, graph_of


def _wrong(model: type[Model], value: object) -> str:
    if not isinstance(value, dict) or not all(isinstance(condition, Q) for condition in value.values()):
        return "must map names of states to conditions, such as Q(sent_at__isnull=False)"
    return next(filter(None, (state_problem(graph_of(model), name) for name in value)), "")


# Conditions by names of states. When a table that has rows gets the state, ``makemigrations`` writes a migration that
# gives each row the first state whose condition it meets, or else the initial one.
add_model_option(ModelOption(name="adopts", wrong=_wrong))
