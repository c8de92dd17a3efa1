"""Deletion of rows that have no effect once they have not been used for a day."""

from datetime import timedelta

from django.db.models import Model, QuerySet

from stator.models import Now

IDLE = timedelta(days=1)
AT_ONCE = 1000


def delete_idle(rows: QuerySet[Model], used: str) -> int:
    """Delete up to 1,000 idle rows; return how many. ``used``: the column, with an index, of their latest use."""
    idle = rows.filter(**{f"{used}__lt": Now() - IDLE})
    pks = list(idle.order_by(used).values_list("pk", flat=True)[:AT_ONCE])
    return idle.filter(pk__in=pks).delete()[0] if pks else 0
