"""What objects were before a manual action, for an hour."""

from django.db import models
from django.db.models import Case, F, Model, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable

from stator.rows.actions import Action
from stator.rows.keys import KEY_LENGTH, key_text
from stator.rows.life import RESTS_AFTER, VISIT
from stator.rows.record_tables import RecordTable, add_record_table
from stator.rows.records import inserting, send
from stator.rows.state_column import state_field

# An action can be undone for this many seconds.
UNDONE_WITHIN = RESTS_AFTER


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
        app_label = "stator"
        constraints = [models.UniqueConstraint(fields=["action", "object_pk"], name="stator_before_once_per_action")]

    def __str__(self) -> str:
        return f"{self.object_pk} before action {self.action}: {self.state}"


def remember(action: Action, rows: QuerySet[Model], attempts: Combinable | None = None) -> None:
    """Store what locked rows are, in the transaction that then changes them; the action is saved already.

    ``attempts``: their number of attempts after the action; by default none if it moves them, else as before.
    """
    using = str(rows.db)
    if attempts is None:
        attempts = Value(0, output_field=models.IntegerField()) if action.moves else F("state_attempts")
    values = {
        "action": Value(action.pk, output_field=models.BigIntegerField()),
        "object_pk": key_text(rows.model, using, F),
        "version": F("state_version") + (1 if action.moves else 0),
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


def _due() -> Case:
    """Return when a row is due: after the action nobody runs it before the lease that it had would have ended."""
    # A ready row is due in its place in line, spelled so that other writers, who set null, are seen.
    ready = Q(state_ready=True, state_next_attempt=None)
    return Case(
        When(state_claim__isnull=False, then=F("state_locked_until")),
        When(ready, then=F("state_changed")),
        default=F("state_next_attempt"),
    )


add_record_table(RecordTable(model=Before, privileges=(), labelled=False, sweep="stator.extensions.undo.follower.OVER"))
