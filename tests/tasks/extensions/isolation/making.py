"""Tasks of an isolated action."""

from typing import Any

from tasks.models import Task
from tests.tasks.actions import making


def make(do: str = "", action: str = "alone", **columns: Any) -> Task:
    return making.make(action, **{"data": {"do": do}, **columns})


def ran(do: str = "", action: str = "alone", **columns: Any) -> Task:
    return making.ran(action, **{"data": {"do": do}, **columns})
