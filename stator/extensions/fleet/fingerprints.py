"""Fingerprints of graphs: equal for equal declarations, in every process and version of Python. Independent of Django.

They cover the states, the options that they set and their edges, by names and declared values. The code of handlers is
not covered, nor are labels and defaults: a new option of ``State`` changes no graph that does not set it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from functools import partial
from hashlib import sha256

from stator.graph.backoff import Backoff
from stator.graph.graphs import StateGraph
from stator.graph.states import Edge, State

# Hexadecimal digits of the fingerprint of a state. A fleet has a handful of versions.
DIGITS = 12

DEFAULTS = State()._declared

# How deep a condition is read. No condition that people write is deeper.
DEEPEST = 20


def fingerprints(graph: type[StateGraph]) -> Mapping[str, str]:
    """Return the fingerprint of each state by its name, in the order of the names."""
    return {name: _digest(_declared(graph, state)) for name, state in sorted(graph.states.items())}


def fingerprint(states: Mapping[str, str]) -> str:
    """Return the fingerprint of a graph from its states' fingerprints."""
    return _digest(sorted(states.items()))


def _declared(graph: type[StateGraph], state: State) -> list[object]:
    changed = {name: value for name, value in state._declared.items() if value != DEFAULTS[name] and name != "label"}
    options = {name: plain(value) for name, value in changed.items()}
    # The default is the name of the state, whether it is written out or not.
    options["handler_name"] = state.handler_name
    edges = [_edge(edge) for edge in graph.edges if edge.state.name == state.name]
    return [sorted(options.items()), sorted(edges, key=json.dumps), state.initial]


def _edge(edge: Edge) -> list[object]:
    trigger = [plain(edge.trigger.declared)] if edge.trigger else []
    at = [] if edge.at is None else [str(edge.at)]
    return [edge.kind, edge.other.name, plain(edge.seconds), plain(edge.condition), *trigger, *at]


def _digest(value: object) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:DIGITS]


def plain(value: object, depth: int = 0) -> object:
    """Return a declared value as JSON without addresses in memory: functions and classes by their names."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        # 60 and 60.0 mean the same number of seconds.
        return float(value) if abs(value) < 1 << 53 else str(value)
    if depth > DEEPEST:
        return _name_of(type(value))
    below = partial(plain, depth=depth + 1)
    if isinstance(value, Mapping):
        return sorted(([str(name), below(each)] for name, each in value.items()), key=json.dumps)
    if isinstance(value, list | tuple):
        return [below(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(below, value), key=json.dumps)
    return _of_object(value, below)


def _of_object(value: object, below: Callable[[object], object]) -> object:
    if isinstance(value, State):
        return value.name
    if isinstance(value, Enum):
        return [_name_of(type(value)), value.name]
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Backoff):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        # Version 1.1 lacks it, and its graphs go on as they are.
        if parts["jitter"] == Backoff().jitter:
            del parts["jitter"]
        return [_name_of(type(value)), *map(below, parts.values())]
    if isinstance(value, partial):
        return [below(value.func), below(value.args), below(value.keywords)]
    if callable(value) and hasattr(value, "__qualname__"):
        return _name_of(value)
    if type(value).__module__ in SPEAKING:
        return str(value)
    return _deconstructed(value, below)


def _deconstructed(value: object, below: Callable[[object], object]) -> object:
    """Return a condition or expression of Django by its parts; what cannot be taken apart, by its class alone."""
    deconstruct = getattr(value, "deconstruct", None)
    try:
        return below(list(deconstruct())) if callable(deconstruct) else _name_of(type(value))
    except ValueError:
        # Django refuses to deconstruct an instance of a class that was made within a function.
        return _name_of(type(value))


# Modules whose values have a text that says all and does not change.
SPEAKING = frozenset({"datetime", "decimal", "uuid", "fractions"})


def _name_of(value: object) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
