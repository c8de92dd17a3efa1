"""The end of what objects were before actions that can no longer be undone."""

from stator.db.sweeps import Sweep
from stator.rows import columns
from stator.rows.actions import UNDONE_WITHIN, Action, Before


class Over(Sweep):
    """Deletes it, whatever the retentions are."""

    def part(self, alias: str, limit: int, age: float) -> int:
        """Delete some; each action has its rows together in the index, so the few that have any are found first."""
        over = Action.objects.using(alias).filter(at__lt=columns.after(-UNDONE_WITHIN))
        rows = Before.objects.using(alias)
        old = list(rows.filter(action__in=over.values("pk")).values_list("pk", flat=True)[:limit])
        return rows.filter(pk__in=old).delete()[0] if old else 0


OVER = Over()
