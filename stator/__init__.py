"""Reconciliation loops for Django models: objects get from one state to another and stay right."""

from stator.backoff import Backoff
from stator.exceptions import (
    Fail,
    GraphError,
    InvalidTransition,
    LeaseLost,
    ProtectedColumn,
    ProtectedState,
    TryAgainLater,
)
from stator.graph import State, StateGraph

__all__ = [
    "Backoff",
    "Fail",
    "GraphError",
    "InvalidTransition",
    "LeaseLost",
    "ProtectedColumn",
    "ProtectedState",
    "State",
    "StateGraph",
    "TryAgainLater",
    "__version__",
]

__version__ = "0.1.0"
