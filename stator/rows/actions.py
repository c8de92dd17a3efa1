"""Manual actions on many objects: who acted and why, and for an hour what each object was before, for ``undo``."""

from collections.abc import Callable

from django.db import models
from django.db.models import Case, F, Model, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable

from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH, key_text
from stator.rows.life import RESTS_AFTER, VISIT
from stator.rows.meta import owner_of
from stator.rows.records import REASON_LENGTH, inserting, send
from stator.rows.rollbacks import remembered
from stator.rows.state_column import state_field

# An action can be undone for this many seconds.
UNDONE_WITHIN = RESTS_AFTER


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

    def note(self, rows: QuerySet[Model], count: int, attempts: Combinable | None = None) -> None:
        """Store what ``count`` locked rows are, in the transaction that then changes them.

        ``attempts``: their number of attempts after the action; by default none if it moves them, else as before.
        """
        using = str(rows.db)
        self.add(using, count)
        if attempts is None:
            attempts = Value(0, output_field=models.IntegerField()) if self.moves else F("state_attempts")
        values = {
            "action": Value(self.pk, output_field=models.BigIntegerField()),
            "object_pk": key_text(rows.model, using, F),
            "version": F("state_version") + (1 if self.moves else 0),
            "tried": attempts,
            "state": state_field(rows.model).named(),
            "changed": F("state_changed"),
            "attempted": F("state_attempted"),
            "ready": Case(When(state_claim=None, then=F("state_ready")), default=Value(False)),
            "due": _due(),
            "attempts": F("state_attempts"),
            "failures": F("state_failures"),
            "crashes": F("state_crashes"),
            "visit": F(VISIT),
        }
        send(inserting(rows, Before, values), using, {})

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


def _due() -> Case:
    """Return when a row is due: after the action nobody runs it before the lease that it had would have ended."""
    # A ready row is due in its place in line, spelled so that other writers, who set null, are seen.
    ready = Q(state_ready=True, state_next_attempt=None)
    return Case(
        When(state_claim__isnull=False, then=F("state_locked_until")),
        When(ready, then=F("state_changed")),
        default=F("state_next_attempt"),
    )


class Before(models.Model):
    """What one object was before an action, and by which ``version`` and attempts ``tried`` it is untouched since."""

    action = models.BigIntegerField()
    object_pk = models.CharField(max_length=KEY_LENGTH)
    version = models.BigIntegerField()
    tried = models.IntegerField()
    state = models.CharField(max_length=100)
    changed = models.DateTimeField()
    attempted = models.DateTimeField(null=True)
    ready = models.BooleanField()
    due = models.DateTimeField(null=True)
    attempts = models.IntegerField()
    failures = models.IntegerField()
    crashes = models.IntegerField()
    visit = models.BigIntegerField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["action", "object_pk"], name="stator_before_once_per_action")]

    def __str__(self) -> str:
        return f"{self.object_pk} before action {self.action}: {self.state}"


def traceable(changes: columns.Changes) -> columns.Changes:
    """Return the changes of an action so that a row that another writer makes due shows it: others set no due time.

    The row is due at the moment when it entered its state, which is its place in line without a due time too.
    """
    if changes.get("state_ready") is True and changes.get("state_next_attempt") is None:
        return changes | {"state_next_attempt": changes.get("state_changed", F("state_changed"))}
    return changes
