"""Rate and concurrency limits of actions over all workers, stored in the database.

Each statement is a transaction of its own, so no row stays locked while an action runs.
"""

import logging
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import Error, models
from django.db.models import Exists, F, OuterRef, QuerySet

from stator.models import MomentField, Now, are_apart
from tasks.extensions.throttles.frequency import KEY_LENGTH, Frequency, UsedLimit
from tasks.extensions.throttles.options import Throttled
from tasks.rows.idle import delete_idle
from tasks.rows.tables import task_model, task_rows

if TYPE_CHECKING:
    from tasks.models import Task

logger = logging.getLogger("tasks.actions")

# Tries if another worker changes the row at the same time. After the last one, the attempt is postponed.
TRIES = 5

# An attempt that found no free slot asks again after this many seconds, up to twice as many.
ASK_AGAIN = 1.0


class ActionRate(models.Model):
    """The rate limit of a key: how many attempts were started in the current window, and how many were put off."""

    key = models.CharField(max_length=KEY_LENGTH, primary_key=True)
    window = models.BigIntegerField(default=0)
    until = models.DateTimeField(db_index=True)
    started = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)

    # When the row was read.
    now: datetime

    def __str__(self) -> str:
        return self.key

    @classmethod
    def take(cls, using: str, key: str, rate: Frequency) -> float:
        """Return 0 if an attempt may start now, else the seconds after which to ask again.

        Attempts that are put off get times spaced by the rate, so that they do not all come back at once.
        """
        row = cls.objects.using(using).filter(key=key)
        for _ in range(TRIES):
            current = row.annotate(now=Now()).first()
            if current is None:
                # The new row's window is over, even for a worker that read the time a moment earlier, so the next try
                # begins one.
                over = Now() - timedelta(seconds=1)
                ActionRate.objects.using(using).bulk_create([ActionRate(key=key, until=over)], ignore_conflicts=True)
                continue
            mine = row.filter(window=current.window)
            # A longer window is of a rate that has been raised since; another worker's statement may be a moment ahead.
            longest = timedelta(seconds=rate.period + 1)
            if not current.now < current.until <= current.now + longest:
                until = Now() + timedelta(seconds=rate.period)
                if mine.update(window=F("window") + 1, until=until, started=1, refused=0):
                    return 0.0
            elif mine.filter(started__lt=rate.count).update(started=F("started") + 1):
                return 0.0
            elif mine.filter(started__gte=rate.count).update(refused=F("refused") + 1):
                left = float((current.until - current.now).total_seconds())
                return max(0.01, left) + rate.period * (current.refused // rate.count + random.random())
        return random.uniform(0.1, 1.0) * rate.period


class ActionSlot(models.Model):
    """A concurrency slot of a key, taken by a task. It is free again once the claim on the task has ended."""

    key = models.CharField(max_length=KEY_LENGTH)
    number = models.PositiveIntegerField()
    task = models.BigIntegerField()
    token = models.UUIDField()
    taken = MomentField(db_default=Now(), db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "number"], name="tasks_actionslot_one_per_number")]

    def __str__(self) -> str:
        return f"{self.key} {self.number}"

    @classmethod
    def take(cls, using: str, key: str, places: int, task: int, token: UUID) -> float:
        """Return 0 if the task has a slot now, else the seconds after which to ask again."""
        slots = cls.objects.using(using).filter(key=key)
        _ended(slots, using).delete()
        for _ in range(TRIES):
            free = sorted(set(range(places)) - set(slots.values_list("number", flat=True)))
            if not free:
                break
            slot = ActionSlot(key=key, number=random.choice(free), task=task, token=token)
            ActionSlot.objects.using(using).bulk_create([slot], ignore_conflicts=True)
            if slots.filter(number=slot.number, task=task, token=token).exists():
                return 0.0
        return random.uniform(ASK_AGAIN, 2 * ASK_AGAIN)

    @classmethod
    def admit(cls, action: Throttled, task: "Task", token: UUID) -> tuple[float, str]:
        """Take a slot and a start for an attempt, if the task's action has these limits; return ``(0.0, "")``.

        If one of them is used up, return the seconds after which to ask again, and why.
        """
        using, key = str(task._state.db), action.throttle_key(task)
        if action.concurrency and (wait := cls.take(using, key, action.concurrency, task.pk, token)):
            return wait, str(UsedLimit(key, concurrency=action.concurrency))
        if action.frequency and (wait := ActionRate.take(using, key, action.frequency)):
            return wait, str(UsedLimit(key, rate=action.rate))
        return 0.0, ""

    @classmethod
    def leave(cls, action: Throttled, task: "Task", token: UUID) -> None:
        """Release the slot of an attempt; if that fails, it is free once the claim has ended."""
        mine = cls.objects.using(task._state.db).filter(task=task.pk, token=token)
        try:
            mine.filter(key=action.throttle_key(task)).delete()
        except Error as error:
            fields = {"action": action.name, "task": task.pk, "error": type(error).__name__}
            logger.warning("tasks.slot_kept", extra=fields)


def prune(using: str) -> int:
    """Delete up to 1,000 unused rows of each table; return how many."""
    slots = _ended(ActionSlot.objects.using(using), using)
    return delete_idle(ActionRate.objects.using(using), "until") + delete_idle(slots, "taken")


def _ended(slots: QuerySet[ActionSlot], using: str) -> QuerySet[ActionSlot]:
    if are_apart(task_model(), using):
        # A slot is also kept while another task of its claim is held.
        held = task_rows(using).filter(state_claim__in=set(slots.values_list("token", flat=True)))
        return slots.exclude(token__in=set(held.values_list("state_claim", flat=True)))
    held = task_rows(using).filter(pk=OuterRef("task"), state_claim=OuterRef("token"))
    return slots.exclude(Exists(held))
