"""Rate limits of ticks over all workers. A row for each key is locked while its ticks are decided."""

from datetime import datetime, timedelta

from django.db import models

from stator.models import Now
from tasks.datetimes import aware, stored
from tasks.rows.idle import IDLE, delete_idle


class Rate(models.Model):
    """The rate limit of a key: when its next tick may fire, and until when turns are given out.

    Ticks of a key are at least the interval of the rate apart, by the database's clock. Each tick that has to wait gets
    a turn of its own, so that they do not all come back at once.
    """

    key = models.CharField(max_length=200, primary_key=True)
    free_at = models.DateTimeField()
    line_until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key

    def admit(self, now: datetime, per_second: float, held_until: datetime | None) -> datetime | None:
        """Return None if a tick may fire now, else when to ask again; ``held_until`` is the previous answer."""
        interval = timedelta(seconds=1 / per_second)
        # A later time is of a rate that has been raised since.
        self.free_at = min(self.free_at, now + interval)
        if held_until is not None and held_until > now:
            return max(held_until, self.free_at)
        in_turn = held_until is not None or self.line_until <= now
        if in_turn and self.free_at <= now:
            self.free_at = now + interval
            self.line_until = max(self.line_until, self.free_at)
            return None
        if held_until is not None:
            return self.free_at
        place = max(self.line_until, self.free_at)
        self.line_until = place + interval
        return place


def lock_rates(using: str, keys: set[str]) -> tuple[dict[str, Rate], datetime]:
    """Lock the rows of these keys, in order, until the transaction ends; return them and the time after locking."""
    rates = Rate.objects.using(using)
    wanted = rates.filter(key__in=keys).order_by("key")
    # Repeated in case an idle row is pruned in between.
    while missing := sorted(keys - set(wanted.select_for_update().values_list("key", flat=True))):
        new = [Rate(key=key, free_at=Now() - IDLE, line_until=Now() - IDLE) for key in missing]
        rates.bulk_create(new, ignore_conflicts=True)
    locked = list(wanted.annotate(now=Now()))
    for rate in locked:
        rate.free_at, rate.line_until = aware(rate.free_at), aware(rate.line_until)
    return {rate.key: rate for rate in locked}, aware(locked[0].now)


def keep_rates(using: str, rates: dict[str, Rate]) -> None:
    """Save locked rates."""
    for rate in rates.values():
        rate.free_at, rate.line_until = stored(rate.free_at, using), stored(rate.line_until, using)
        rate.save(update_fields=["free_at", "line_until"])


def end_turns(using: str, keys: set[str]) -> None:
    """Forget the turns that were given out for these keys, as after a change of the rate."""
    Rate.objects.using(using).filter(key__in=keys).update(line_until=Now())


def prune_rates(using: str) -> int:
    """Delete up to 1,000 idle rows; return how many."""
    return delete_idle(Rate.objects.using(using), "line_until")
