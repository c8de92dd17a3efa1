"""Whether one value of a field holds the line of a model: its first and its last ready objects are read."""

from collections.abc import Iterable

from django.db.models import CharField, ForeignKey, IntegerField, Model, Q, UUIDField

from stator.conf import load_settings
from stator.db.conditions import Stored
from stator.explain.starving import LEAST, Starving, line_ends, starving
from stator.explain.survey import Depths
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.claimable import claimable
from stator.rows.indexes import line_of_all, place_in_line
from stator.rows.meta import options_of
from stator.rows.state_column import state_field

# The most fields that are looked at.
FIELDS = 10


def starving_in(rows: OperatorQuerySet[StatorModel], depths: Depths, said: Iterable[Stored]) -> Starving | None:
    """Return what holds the line of a model whose values do not take turns; none unless objects wait for long.

    Indexes ``st_ready`` and ``st_age``. ``said``: what stored conditions say of the model.
    """
    model: type[StatorModel] = rows.model
    options = options_of(model)
    names = _names(model)
    if options.fair_by or options.spread or not names or not depths.is_behind or depths.ready <= LEAST:
        return None
    states, held = list(model.state_graph.automatic_states), Q()
    for each in said:
        states = each.running(states)
        held |= each.held(model, states)
    wanted = claimable(state_field(model), [state.name for state in states], load_settings())
    line = rows.filter(wanted, ~held if held else Q()).order_by(*line_of_all(model))
    [head] = line_ends([line], place_in_line(), *names)
    if not Starving.is_possible(head):
        return None
    [tail] = line_ends([line.reverse()], place_in_line(), *names)
    return starving(names, head, tail)


def _names(model: type[Model]) -> list[str]:
    """Return the names of fields that ``fair_by`` may name: relations first, as they lead to customers."""
    priority, state = options_of(model).priority or "", state_field(model)
    apart = {state.name, *FRAMEWORK_COLUMNS, priority.removeprefix("-")}
    own = [field for field in model._meta.concrete_fields if field.model is state.model and field.name not in apart]
    fields = [field for field in own if not (field.unique or field.null)]
    relations = [field.name for field in fields if isinstance(field, ForeignKey)]
    plain = [field.name for field in fields if isinstance(field, CharField | IntegerField | UUIDField)]
    return [*relations, *plain][:FIELDS]
