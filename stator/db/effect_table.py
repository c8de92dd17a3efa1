"""The table of effects, in the order in which records ask and write them; an app's own are among its hooks."""

from stator.db.counted_attempts import CountedAttempts
from stator.db.effects import Effect, Store
from stator.db.history import KeptHistory, KeptReports
from stator.db.program_claims import AllOrNone
from stator.db.related_moves import RelatedMoves
from stator.db.saved_fields import SavedFields
from stator.db.steps import ForgottenSteps

# Saved fields are columns of the row, and what an app keeps may be copied from it. What follows moves comes last: it
# may lock and write other rows.
OF_ROWS: tuple[type[Effect], ...] = (AllOrNone, SavedFields, CountedAttempts, KeptHistory, KeptReports)
FOLLOWING: tuple[type[Effect], ...] = (ForgottenSteps, RelatedMoves)


def bound(store: Store) -> tuple[Effect, ...]:
    """Return the effects of a model's rows, in the order of the table."""
    table = (*OF_ROWS, *store.operations.hooks.effects, *FOLLOWING)
    return tuple(effect for each in table if (effect := each.bind(store)) is not None)
