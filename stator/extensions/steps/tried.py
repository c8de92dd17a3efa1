"""Steps of handlers that ``check_graph`` calls: with the rules of an attempt, but remembered instead of recorded."""

from typing import Any

from stator.extensions.steps.attempt import STEPS, Steps


class TriesSteps:
    """The steps of a claim that is only tried; its ``done`` has the results as JSON, and gets further ones."""

    __slots__ = ()

    def own_steps(self: Any) -> Steps:
        """Return the steps of the attempt."""
        steps = STEPS.of(self)
        if steps is None:
            steps = _TriedSteps(self, self.done)
            STEPS.note(self, steps)
        return steps


class _TriedSteps(Steps):
    def __init__(self, claim: Any, done: dict[str, str]) -> None:
        super().__init__(claim)
        self._done = done

    def _recorded(self, name: str, text: str) -> bool:
        return True
