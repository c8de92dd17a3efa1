"""The table of effects, in the order in which records ask and write them."""

from stator.db.effects import Effect, Store
from stator.db.followed_moves import FollowedMoves
from stator.db.program_claims import AllOrNone
from stator.db.saved_fields import SavedFields
from stator.rows.kinds import Kinds

# Saved fields are columns of the row, and what an app keeps may be copied from it.
OF_ROWS: tuple[type[Effect], ...] = (AllOrNone, SavedFields)
FOLLOWING: tuple[type[Effect], ...] = (FollowedMoves,)


# Without the effects, what they write would be missing.
EFFECTS = Kinds[type[Effect]]("recorded")


def bound(store: Store) -> tuple[Effect, ...]:
    """Return the effects of a model's rows, in the order of the table; what ``follows`` comes last."""
    table = (*OF_ROWS, *EFFECTS.known(store.operations.label), *FOLLOWING)
    mine = [effect for each in table if (effect := each.bind(store)) is not None]
    return tuple(sorted(mine, key=lambda effect: effect.follows))
