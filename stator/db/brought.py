"""What claims bring along: what extensions read of the objects beside their rows, for all that are claimed together."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stator.rows.kinds import Kinds

if TYPE_CHECKING:
    from stator.db.interface import Claim, Operations

# Read it for new claims of one model, and keep it with them.
Bring = Callable[[Sequence["Claim"]], None]

# Functions that return what reads for the claims of a store, or None; without these, handlers would miss what happened.
BROUGHT = Kinds["Callable[[Operations], Bring | None]"]("claimed")


def brought_by(store: "Operations") -> tuple[Bring, ...]:
    """Return what the claims of a store bring along."""
    return tuple(bring for each in BROUGHT.known(store.label) if (bring := each(store)) is not None)
