"""The table of effects, in the order in which records ask and write them."""

from dataclasses import dataclass

from stator.db.effects import Effect, Store
from stator.db.followed_moves import FollowedMoves
from stator.db.program_claims import AllOrNone
from stator.db.saved_fields import SavedFields

# Saved fields are columns of the row, and what an app keeps may be copied from it.
OF_ROWS: tuple[type[Effect], ...] = (AllOrNone, SavedFields)
FOLLOWING: tuple[type[Effect], ...] = (FollowedMoves,)


@dataclass(slots=True)
class EffectKinds:
    """The effects that extensions have, in the order of their table; None before the app is ready."""

    all: tuple[type[Effect], ...] | None = None


EFFECTS = EffectKinds()


def bound(store: Store) -> tuple[Effect, ...]:
    """Return the effects of a model's rows, in the order of the table; what ``follows`` comes last."""
    if EFFECTS.all is None:
        # Without the effects, what they write would be missing.
        raise RuntimeError(f"{store.operations.label}: nothing can be recorded before the app stator is ready")
    table = (*OF_ROWS, *EFFECTS.all, *FOLLOWING)
    mine = [effect for each in table if (effect := each.bind(store)) is not None]
    return tuple(sorted(mine, key=lambda effect: effect.follows))
