"""When waiting objects are due: moved by hand, to now, to any other time, or one after the other."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Case, DateTimeField, Expression, Model, Q, QuerySet, Value, When
from django.utils import timezone

from stator.conf import load_settings
from stator.graph.backoff import MAX_SECONDS
from stator.graph.options import is_number
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.clock import Now, moment_text
from stator.rows.dates import come
from stator.rows.meta import graph_of
from stator.rows.state_column import state_field
from stator.rows.transitions import write_by_hand

# A time, a duration or seconds from now, an expression that the database computes, or None for now.
Due = datetime | timedelta | float | Expression | None


def make_due(rows: QuerySet[Model], at: Due, action: Action | None = None) -> int:
    """Let the rows be due at a time, and not before; return how many. ``action``: of which this is a part.

    Others stay as they are, since it is not their due time that decides when they are attempted next: claimed and
    quarantined rows, rows that wait for another object or for a later date of ``try_at``, and rows in states that
    workers do not attempt.
    """
    own = state_field(rows.model).among(graph_of(rows.model).automatic_states)
    moment, words = _moment(at)
    free = rows.filter(come(rows.model, moment), state_claim=None, **own, state_crashes__lt=load_settings().MAX_CRASHES)
    actor, why = (action.actor, action.reason) if action else ("", "")
    reason = f"made due {words}{': ' * bool(why)}{why}"
    rescheduled = columns.rescheduling(moment)
    return write_by_hand(free.exclude(parked()), rescheduled, actor=actor, reason=reason, action=action)


def _moment(at: Due) -> tuple[Expression, str]:
    """Return a time for the database, and in words; raise ``ValueError`` if it cannot be one."""
    if at is None:
        return Now(), "now"
    if isinstance(at, Expression):
        return at, "at another time"
    if isinstance(at, datetime):
        if timezone.is_aware(at) != settings.USE_TZ:
            at = timezone.make_aware(at) if settings.USE_TZ else timezone.make_naive(at)
        if at < parked_from():
            return Value(at, output_field=DateTimeField()), f"at {moment_text(at)}"
    else:
        seconds = at.total_seconds() if isinstance(at, timedelta) else at
        if is_number(seconds) and abs(seconds) <= MAX_SECONDS:
            return (columns.after(seconds), f"in {seconds:g} s") if seconds > 0 else (Now(), "now")
    raise ValueError(
        f"{at!r} is no due time; give a datetime before the year 4000, or a timedelta or seconds of at most a hundred "
        "years from now, or None for now"
    )


def is_due(model: type[Model]) -> Q:
    """Return a filter for the rows whose due time has passed, or that have none, and whose start has come."""
    return (Q(state_next_attempt=None) | Q(state_next_attempt__lte=Now())) & come(model, Now())


def parked() -> Q:
    """Return a filter for rows that wait for another object: their due time is so far away that no poll finds them."""
    return Q(state_ready=False, state_claim=None, state_next_attempt__gte=parked_from())


def parked_from() -> datetime:
    """Return the earliest due time of a parked row, and the end of all others."""
    return first_of(4000)


def first_of(year: int) -> datetime:
    """Return when a year begins."""
    return datetime(year, 1, 1, tzinfo=UTC if settings.USE_TZ else None)


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


# How many objects are checked; a message needs no more.
LOOKED_AT = 1000


def looked_at(rows: QuerySet[Model]) -> list[object]:
    """Return the keys of the first rows, to be asked for before an action that changes what a filter finds."""
    return list(rows.order_by("pk").values_list("pk", flat=True)[:LOOKED_AT])
