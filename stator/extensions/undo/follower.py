"""What acts by hand leave for their undo, and its end when they can no longer be undone."""

from django.db.models import Model, QuerySet

from stator.db.own_tables import Sweep
from stator.extensions.undo.models import UNDONE_WITHIN, Before, remember
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.followers import Follower, HandAct


class Remembered(Follower):
    """Stores what rows were before an action."""

    def by_hand(self, rows: QuerySet[Model], pks: list[object], act: HandAct) -> None:
        """Store it, if the act is a part of an action."""
        if act.action is not None:
            remember(act.action, rows)


class Over(Sweep):
    """Deletes it, whatever the retentions are."""

    def part(self, alias: str, limit: int, age: float) -> int:
        """Delete some; each action has its rows together in the index, so the few that have any are found first."""
        over = Action.objects.using(alias).filter(at__lt=columns.after(-UNDONE_WITHIN))
        rows = Before.objects.using(alias)
        old = list(rows.filter(action__in=over.values("pk")).values_list("pk", flat=True)[:limit])
        return rows.filter(pk__in=old).delete()[0] if old else 0


OVER = Over()
