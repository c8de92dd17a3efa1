"""Claimants: the named workers that ask a queue for work."""

from django.db import models

from stator.models import MomentField, Now

# A named worker that has not asked for work for this many seconds counts as gone.
CLAIMANT_ALIVE = 60.0
MAX_CLAIMANTS = 1000

# Seconds between two updates of when a worker last asked for work.
SEEN_EVERY = 10.0


class Claimant(models.Model):
    """A named worker that asks a queue for work, and when it last did."""

    queue = models.ForeignKey("tasks.Queue", models.CASCADE, related_name="claimants")
    worker = models.CharField(max_length=100)
    seen = MomentField(db_default=Now())

    class Meta:
        app_label = "tasks"
        constraints = [models.UniqueConstraint(fields=["queue", "worker"], name="tasks_claimant_once")]
        indexes = [models.Index(fields=["seen"], name="tasks_claimant_seen")]

    def __str__(self) -> str:
        return f"{self.worker} on {self.queue_id}"
