"""What acts by hand leave for their undo."""

from django.db.models import Model, QuerySet

from stator.rows.actions import Action
from stator.rows.followers import Follower, HandAct


class Remembered(Follower):
    """Stores what rows were before an action."""

    def by_hand(self, rows: QuerySet[Model], pks: list[object], act: HandAct) -> None:
        """Store it, if the act is a part of an action."""
        if isinstance(act.action, Action):
            act.action.note(rows, len(pks))
