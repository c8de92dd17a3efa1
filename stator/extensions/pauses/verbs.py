"""Pauses of ``Model.stator``: the verbs that make and end them."""

from collections.abc import Mapping
from typing import Any

from stator.extensions.pauses.models import Pause, end_pauses, keep_pause, planned_pause
from stator.graph.states import State
from stator.rows.actions import Action
from stator.rows.meta import written_to


class Pausing:
    """Verbs of a queryset of a managed model."""

    model: Any
    query: Any

    def pause(
        self,
        state: State | str | int | None = None,
        where: Mapping[str, object] | None = None,
        reason: str = "",
        actor: str = "",
        seconds: float | None = None,
        action: Action | None = None,
    ) -> Pause:
        """Pause the model, one state of it, or the rows with the values in ``where``; running attempts may finish.

        ``where``: fields of the model with JSON values, such as ``{"tenant": 3}``, or keys, ``{"pk__in": [1, 2]}``.
        ``seconds``: how long the pause lasts; None means until ``resume()``. Workers obey from their next poll on.
        """
        self._refuse_part("pause")
        rows: Any = self
        using = written_to(rows)
        pause = planned_pause(self.model, using, state=state, where=where, reason=reason, actor=actor, seconds=seconds)
        return keep_pause(pause, using, action or Action.of(self.model, "pause", actor, reason))

    def resume(
        self, state: State | str | int | None = None, where: Mapping[str, object] | None = None, actor: str = ""
    ) -> int:
        """End the pauses of the model, or only those made with this ``state`` and ``where``; return how many."""
        self._refuse_part("resume")
        rows: Any = self
        return end_pauses(self.model, written_to(rows), state=state, where=where, actor=actor)

    def _refuse_part(self, name: str) -> None:
        """Raise ``ValueError`` for a filtered queryset: a pause applies to future rows too, which it cannot contain."""
        if self.query.where or self.query.is_sliced:
            raise ValueError(
                f"{name}() does not take filtered rows; use {self.model.__name__}.stator.{name}(where={{...}})"
            )
