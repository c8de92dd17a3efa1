"""Manual actions on many objects: who acted, why, when, and on how many."""

from collections.abc import Callable

from django.db import models
from django.db.models import F, Model, QuerySet

from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.life import RESTS_AFTER
from stator.rows.meta import owner_of
from stator.rows.records import REASON_LENGTH
from stator.rows.rollbacks import remembered


class Action(models.Model):
    """A manual action on objects of one model: ``kind``, who did it, why, when, and to how many objects.

    ``moves``: whether it moved the objects, and did not only change when they are attempted. ``undoes``: the number of
    the action that it undid. Stored as long as the history.
    """

    model_label = models.CharField(max_length=200)
    kind = models.CharField(max_length=20)
    moves = models.BooleanField(default=False)
    actor = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    at = MomentField(db_default=Now())
    count = models.BigIntegerField(default=0)
    undoes = models.BigIntegerField(null=True, blank=True)
    # Called with the number of objects so far, before each batch is committed.
    progress: Callable[[int], None] | None = None

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="stator_action_at"),
            models.Index(fields=["model_label", "at"], name="stator_action_of_model"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}: {self.model_label}"

    @classmethod
    def of(
        cls,
        model: type[Model],
        kind: str,
        actor: str = "",
        reason: str = "",
        *,
        moves: bool = False,
        undoes: int | None = None,
    ) -> "Action":
        """Return an action that is saved with the first objects that it changes."""
        label = owner_of(model)._meta.label_lower
        return cls(
            model_label=label, kind=kind, actor=actor[:150], reason=reason[:REASON_LENGTH], moves=moves, undoes=undoes
        )

    def add(self, using: str, count: int) -> None:
        """Count objects; save the action with the first of them. A rollback takes both back."""
        with remembered(using, [self]):
            self.count += count
            if self._state.adding:
                self.save(using=using, force_insert=True)
            else:
                Action.objects.using(using).filter(pk=self.pk).update(count=F("count") + count)
        if self.progress is not None:
            self.progress(self.count)


def recent_actions(using: str) -> QuerySet[Action]:
    """Return the actions of the last hour, the latest first."""
    return Action.objects.using(using).filter(at__gte=columns.after(-RESTS_AFTER), count__gt=0).order_by("-pk")


def traceable(changes: columns.Changes) -> columns.Changes:
    """Return the changes of an action so that a row that another writer makes due shows it: others set no due time.

    The row is due at the moment when it entered its state, which is its place in line without a due time too.
    """
    if changes.get("state_ready") is True and changes.get("state_next_attempt") is None:
        return changes | {"state_next_attempt": changes.get("state_changed", F("state_changed"))}
    return changes
