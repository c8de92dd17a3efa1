"""What a task offers of problems. What answers is imported when it is called, as by the framework's own ``verbs``."""

from typing import Any

from stator.models import Reason, StatorModel


def explain(self: Any) -> list[Reason]:
    """Return why the task is not moving: the queue's reasons, then the framework's for any managed object."""
    from tasks.extensions.problems import explaining

    return explaining.explain(self, StatorModel.explain(self))
