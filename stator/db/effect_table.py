"""The table of effects, in the order in which records ask and write them."""

from stator.db.attempt_records import RecordedAttempts
from stator.db.counted_attempts import CountedAttempts
from stator.db.effects import Effect, Store
from stator.db.history import KeptHistory, KeptReports
from stator.db.related_moves import RelatedMoves
from stator.db.saved_fields import SavedFields
from stator.db.steps import ForgottenSteps

# Saved fields are columns of the row, and the rows for attempts are copied from it. What follows moves comes last: it
# may lock and write other rows.
EFFECTS: tuple[type[Effect], ...] = (
    SavedFields, CountedAttempts, KeptHistory, KeptReports, RecordedAttempts, ForgottenSteps, RelatedMoves,
)  # fmt: skip


def bound(store: Store) -> tuple[Effect, ...]:
    """Return the effects of a model's rows, in the order of the table."""
    return tuple(effect for each in EFFECTS if (effect := each.bind(store)) is not None)
