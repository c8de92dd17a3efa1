"""Reconciliation loops for Django models: workers move objects from state to state until each is where it belongs."""

from stator.exceptions import (
    EventRefused,
    Fail,
    GraphError,
    InvalidTransition,
    LeaseLost,
    ProtectedColumn,
    ProtectedState,
    TryAgainLater,
)
from stator.graph import State, StateGraph
from stator.graph.backoff import Backoff
from stator.graph.senders import Sender

__all__ = [
    "Backoff",
    "EventRefused",
    "Fail",
    "GraphError",
    "InvalidTransition",
    "LeaseLost",
    "ProtectedColumn",
    "ProtectedState",
    "Sender",
    "State",
    "StateGraph",
    "TryAgainLater",
    "__version__",
]

__version__ = "1.2.dev0"
