"""How often actions start and how many of one key run at a time, over all workers: kept in the database.

Every statement is right by itself, so no row stays locked while an action runs.
"""

import random
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import models
from django.db.models import Exists, F, OuterRef
from django.db.models.functions import Now

from tasks.throttling import KEY_LENGTH, Frequency

# Statements that met another worker's are sent again so many times; after that the attempt waits.
AGAIN = 5

# Seconds until an attempt that found every place taken asks again; twice that at the most.
ASK_AGAIN = 1.0

# What nobody asked for so long says nothing any more.
IDLE = timedelta(days=1)
PRUNED_AT_ONCE = 1000


class ActionRate(models.Model):
    """How many attempts of one key have started in the present window of time, and how many were put off in it."""

    key = models.CharField(max_length=KEY_LENGTH, primary_key=True)
    window = models.BigIntegerField(default=0)
    until = models.DateTimeField(db_index=True)
    started = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.key

    @classmethod
    def take(cls, using: str, key: str, rate: Frequency) -> float:
        """0 when an attempt may start now, else the seconds after which to ask again.

        Those that are put off get times as far apart as the rate, so that they do not all come back at once.
        """
        row = cls.objects.using(using).filter(key=key)
        for _ in range(AGAIN):
            found: Any = row.annotate(now=Now()).first()
            if found is None:
                # Over already, also for who looks with a moment read just before: nothing may start in this window.
                over = Now() - timedelta(seconds=1)
                ActionRate.objects.using(using).bulk_create([ActionRate(key=key, until=over)], ignore_conflicts=True)
                continue
            mine = row.filter(window=found.window)
            if found.until <= found.now:
                until = Now() + timedelta(seconds=rate.period)
                if mine.update(window=F("window") + 1, until=until, started=1, refused=0):
                    return 0.0
            elif mine.filter(started__lt=rate.count).update(started=F("started") + 1):
                return 0.0
            elif mine.filter(started__gte=rate.count).update(refused=F("refused") + 1):
                left = float((found.until - found.now).total_seconds())
                return max(0.01, left) + rate.period * (found.refused // rate.count + random.random())
        return random.uniform(0.1, 1.0) * rate.period


class ActionSlot(models.Model):
    """One of the places of a key, taken by a task. It is free again once that claim on the task has ended."""

    key = models.CharField(max_length=KEY_LENGTH)
    number = models.PositiveIntegerField()
    task = models.BigIntegerField()
    token = models.UUIDField()
    taken = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "number"], name="tasks_actionslot_one_per_number")]

    def __str__(self) -> str:
        return f"{self.key} {self.number}"

    @classmethod
    def take(cls, using: str, key: str, places: int, task: Any, token: UUID) -> float:
        """0 when the task has a place now, else the seconds after which to ask again."""
        slots = cls.objects.using(using).filter(key=key)
        _ended(slots, using).delete()
        for _ in range(AGAIN):
            free = sorted(set(range(places)) - set(slots.values_list("number", flat=True)))
            if not free:
                break
            slot = ActionSlot(key=key, number=random.choice(free), task=task, token=token)
            ActionSlot.objects.using(using).bulk_create([slot], ignore_conflicts=True)
            if slots.filter(number=slot.number, task=task, token=token).exists():
                return 0.0
        return random.uniform(ASK_AGAIN, 2 * ASK_AGAIN)

    @classmethod
    def leave(cls, using: str, key: str, task: Any, token: UUID) -> None:
        """Give the place back."""
        cls.objects.using(using).filter(key=key, task=task, token=token).delete()


def prune(using: str) -> int:
    """Delete some rows that say nothing any more; return how many."""
    rates = ActionRate.objects.using(using).filter(until__lt=Now() - IDLE).order_by("until")
    slots = _ended(ActionSlot.objects.using(using).filter(taken__lt=Now() - IDLE), using).order_by("taken")
    deleted = 0
    for rows in (rates, slots):
        if pks := list(rows.values_list("pk", flat=True)[:PRUNED_AT_ONCE]):
            deleted += rows.model._base_manager.using(using).filter(pk__in=pks).delete()[0]
    return deleted


def _ended(slots: Any, using: str) -> Any:
    tasks = apps.get_model("tasks", "Task")._base_manager.using(using)
    held = tasks.filter(pk=OuterRef("task"), state_claim=OuterRef("token"))
    return slots.exclude(Exists(held))
