"""What acts by hand leave in the history."""

from django.db.models import Model, QuerySet

from stator.rows.followers import HAND, Follower, HandAct
from stator.rows.reports import keep_acts, keep_moves


class HandHistory(Follower):
    """Writes an entry for each row; of changes by hand without a move only those that name their author."""

    def by_hand(self, rows: QuerySet[Model], pks: list[object], act: HandAct) -> None:
        """Write the entries."""
        using = str(rows.db)
        if act.target is not None:
            keep_moves(self.model, using, pks, act.target, act.reason, act.kind, actor=act.actor)
        elif act.actor or act.kind != HAND:
            keep_acts(self.model, using, pks, act.actor, act.reason, act.kind)
