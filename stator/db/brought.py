"""What claims bring along: what extensions read of the objects beside their rows, for all that are claimed together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stator.db.interface import Claim, Operations

# Read it for new claims of one model, and keep it with them.
Bring = Callable[[Sequence["Claim"]], None]


@dataclass(slots=True)
class BringKinds:
    """What extensions have, each a function that returns what reads for the claims of a store, or None."""

    all: "tuple[Callable[[Operations], Bring | None], ...] | None" = None

    def of(self, store: "Operations") -> tuple[Bring, ...]:
        """Return what the claims of a store bring along."""
        if self.all is None:
            # Without it, handlers would miss what has happened.
            raise RuntimeError(f"{store.label}: nothing can be claimed before the app stator is ready")
        return tuple(bring for each in self.all if (bring := each(store)) is not None)


BROUGHT = BringKinds()
