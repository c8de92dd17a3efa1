"""Retrying many objects at a rate: they come due one after the other, to protect a service that failed."""

from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Case, Model, QuerySet, Value, When
from django.db.models.fields import DateTimeField

from stator.conf import load_settings
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.clock import Now
from stator.rows.meta import graph_of
from stator.rows.state_column import state_field
from stator.rows.transitions import write_by_hand

# Objects per statement, which gives each its own time.
AT_ONCE = 200


def retry_spread(
    rows: QuerySet[Model], pages: Iterable[list[object]], *, per_minute: float, most: int, action: Action
) -> int:
    """Make rows due one after the other, ``per_minute`` each minute, with errors and crashes reset; return how many.

    ``pages``: lists of primary keys; after ``most`` keys no more are read. Claimed rows are left alone.
    """
    free = rows.filter(state_claim=None, **state_field(rows.model).among(graph_of(rows.model).automatic_states))
    retrying = columns.retrying(load_settings().released_with)
    # Rows and places are counted separately: claimed rows keep their place, or the next rows would come due too soon.
    count = place = 0
    for page in pages:
        for start in range(0, len(page), AT_ONCE):
            pks = page[start : start + AT_ONCE][: most - count]
            due = _due(pks, place, 60.0 / per_minute)
            place += len(pks)
            changes = retrying | {"state_ready": False, "state_next_attempt": due}
            reason = f"retried at {per_minute:g} a minute"
            count += write_by_hand(free.filter(pk__in=pks), changes, actor=action.actor, reason=reason, action=action)
            if count >= most:
                return count
    return count


def _due(pks: list[object], begun: int, apart: float) -> Case:
    """Return when each row is due; in whole seconds, since workers poll about that often."""
    seconds = {pk: int((begun + number) * apart) for number, pk in enumerate(pks)}
    at = {second: Now() + timedelta(seconds=second) for second in set(seconds.values())}
    whens = [
        When(pk__in=[pk for pk in pks if seconds[pk] == second], then=moment) for second, moment in sorted(at.items())
    ]
    return Case(*whens, default=Value(None), output_field=DateTimeField())
