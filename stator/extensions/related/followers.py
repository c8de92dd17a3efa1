"""What moves and writes do for related objects: they reopen what waits, and move what is complete now."""

from collections.abc import Iterator

from django.db.models import Model, QuerySet

from stator.extensions.related.waits import reopen_all, waiters_of, waits_of, wake
from stator.extensions.related.watches import RelatedWatch, watchers_of, watches_of
from stator.rows import columns
from stator.rows.followers import MOVE, Follower, HandAct, WaiterHeld, by_hand, moved
from stator.rows.locking import features_of, read_locked
from stator.rows.meta import field_of
from stator.rows.state_column import state_field
from stator.rows.transitions import tell_moves
from stator.scopes import in_parts


class ReopenedWaiters(Follower):
    """Reopens the parked rows that waited for rows to enter a state."""

    def __init__(self, model: type[Model]) -> None:
        super().__init__(model)
        self._waits = waiters_of(model)
        self.entries = frozenset(state for wait in self._waits for state in wait.until)

    def entered(self, using: str, state: str, pks: list[object], *, wait: bool) -> None:
        """Reopen rows; the next scheduling pass reopens rows that other transactions have locked."""
        for each in self._waits:
            if state in each.until:
                wake(each, using, pks)

    def waking(self, states: set[str]) -> Iterator[type[Model]]:
        """Return the models whose rows wait for these states."""
        return (wait.model for wait in self._waits if states.intersection(wait.until))


class Repointed(Follower):
    """Reopens parked rows whose relations are written, because they may wait for another object now, or for none."""

    def __init__(self, model: type[Model]) -> None:
        super().__init__(model)
        fields = [field_of(model, wait.field) for wait in waits_of(model)]
        self.fields = frozenset(name for field in fields for name in (field.name, field.attname))

    def written(self, rows: QuerySet[Model]) -> None:
        """Reopen the rows."""
        reopen_all(rows)


class Entered(Follower):
    """Moves rows on that enter a state whose condition their related objects meet already."""

    def __init__(self, model: type[Model]) -> None:
        super().__init__(model)
        self._watches = watches_of(model)
        self.entries = frozenset(watch.state.name for watch in self._watches)

    def entered(self, using: str, state: str, pks: list[object], *, wait: bool) -> None:
        """Move the rows that meet a condition."""
        for watch in self._watches:
            if watch.state.name == state:
                _follow(watch, using, pks, wait=wait)


class Related(Follower):
    """Moves objects that waited for the last of their related rows."""

    recorded = True

    def __init__(self, model: type[Model]) -> None:
        super().__init__(model)
        self._watches = watchers_of(model)
        self.entries = frozenset(state for watch in self._watches for state in watch.condition.in_)

    def entered(self, using: str, state: str, pks: list[object], *, wait: bool) -> None:
        """Move the objects that wait for these rows, if they are complete."""
        for watch in self._watches:
            if state in watch.condition.in_:
                _complete(watch, using, pks, wait=wait)


def _complete(watch: RelatedWatch, using: str, pks: list[object], *, wait: bool) -> None:
    """Move the objects that waited for the last of these related objects."""
    waiting = watch.not_handed_on(using, pks)
    if not waiting:
        return
    rows: QuerySet[Model] = QuerySet(watch.model, using=using)
    features = features_of(using)
    skips = not wait and features.has_select_for_update_skip_locked
    mine: list[object] = []
    for part in in_parts(rows.filter(pk__in=waiting)):
        locked = part.order_by("pk").select_for_update(skip_locked=skips, no_key=features.has_select_for_no_key_update)
        mine += locked.values_list("pk", flat=True)
    if skips and (held := set(waiting).difference(mine)):
        raise WaiterHeld(watch.related_to(using, held, pks))
    try:
        _follow(watch, using, mine, wait=wait)
    except WaiterHeld as error:
        raise WaiterHeld(watch.related_to(using, error.pks, pks)) from error


def _follow(watch: RelatedWatch, using: str, pks: list[object], *, wait: bool) -> None:
    """Move objects that are locked, or were moved in this transaction, along an edge whose condition they meet."""
    owner, target, field = watch.model, watch.target, state_field(watch.model)
    rows: QuerySet[Model] = QuerySet(owner, using=using)
    there = rows.filter(pk__in=pks, **field.at(watch.state))
    met = rows.filter(watch.met(there), pk__in=pks, **field.at(watch.state))
    if before := read_locked(met.order_by("pk"), field):
        keys = [row.pk for row in before]
        by_hand(rows, keys, HandAct(target=target, reason=watch.reason, kind=MOVE))
        rows.filter(pk__in=keys).update(**columns.entering(field, target, {watch.state.name}))
        moved(owner, using, target.name, keys, before, wait=wait)
        tell_moves(owner, using, before, target)
