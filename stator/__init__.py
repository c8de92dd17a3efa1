"""Reconciliation loops for Django models: workers move objects from state to state until each is where it belongs."""

from importlib import import_module
from typing import TYPE_CHECKING

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
from stator.extensions.events.senders import Sender
from stator.graph import State, StateGraph
from stator.graph.backoff import Backoff

if TYPE_CHECKING:
    from stator.models import StateField, StatorModel

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
    "StateField",
    "StateGraph",
    "StatorModel",
    "TryAgainLater",
    "__version__",
]

__version__ = "1.2.dev0"


# With it, type checkers would take any name for one of this module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return what is imported when it is used first: models need Django's apps."""
        if name in ("StateField", "StatorModel"):
            return getattr(import_module("stator.models"), name)
        raise AttributeError(f"module 'stator' has no attribute {name!r}")
