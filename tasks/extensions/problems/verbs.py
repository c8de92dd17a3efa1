"""What a task offers of problems. What answers is imported when it is called, as by the framework's own ``verbs``."""

from typing import TYPE_CHECKING

from stator.models import Reason, StatorModel

if TYPE_CHECKING:
    from tasks.models import Task


def explain(self: "Task") -> list[Reason]:
    """Return why the task is not moving: the queue's reasons, then the framework's for any managed object."""
    from tasks.extensions.problems import explaining

    return explaining.explain(self, StatorModel.explain(self))
