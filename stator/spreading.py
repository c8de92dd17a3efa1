"""Retrying many objects at a rate: they come due one after the other, so that what failed is not overrun again."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Case, QuerySet, Value, When
from django.db.models.fields import DateTimeField
from django.db.models.functions import Now

from stator import columns
from stator.moves import write_by_hand

# Objects per statement, each with its own time in it.
AT_ONCE = 200


def retry_spread(rows: QuerySet[Any], pages: Iterable[list[Any]], *, per_minute: float, most: int, actor: str) -> int:
    """Have rows attempted from now on, ``per_minute`` of them in each minute, with a clean record; return how many.

    ``pages``: primary keys, a list at a time; after ``most`` of them nothing more is read. Claimed rows are left alone.
    """
    states = [state.name for state in rows.model.state_graph.automatic_states]
    free = rows.filter(state_claim=None, state__in=states)
    # Counted apart: rows that are left alone keep their place, or what follows would come too soon.
    count = place = 0
    for page in pages:
        for start in range(0, len(page), AT_ONCE):
            pks = page[start : start + AT_ONCE][: most - count]
            due = _due(pks, place, 60.0 / per_minute)
            place += len(pks)
            changes = columns.retrying() | {"state_ready": False, "state_next_attempt": due}
            reason = f"retried at {per_minute:g} a minute"
            count += write_by_hand(free.filter(pk__in=pks), changes, actor=actor, reason=reason)
            if count >= most:
                return count
    return count


def _due(pks: list[Any], begun: int, apart: float) -> Any:
    """When each row is due; whole seconds, since workers look about that often."""
    seconds = {pk: int((begun + number) * apart) for number, pk in enumerate(pks)}
    at = {second: Now() + timedelta(seconds=second) for second in set(seconds.values())}
    whens = [
        When(pk__in=[pk for pk in pks if seconds[pk] == second], then=moment) for second, moment in sorted(at.items())
    ]
    return Case(*whens, default=Value(None), output_field=DateTimeField())
