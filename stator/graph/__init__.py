"""What is allowed: states, transitions and the meaning of a handler's result. It knows no Django.

``graphs`` is where to begin: a :class:`StateGraph` is a class with a :class:`State` for each of its names.
"""

from stator.graph.graphs import Edge, State, StateGraph

__all__ = ["Edge", "State", "StateGraph"]
