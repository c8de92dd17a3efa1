"""Which attempt a context runs."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

# The claims of the attempt that this context runs, or has run.
RUNNING: ContextVar[Sequence[Any] | None] = ContextVar("stator_running", default=None)
