"""Which rows the database has refused to this process lately, and how it goes on with the others."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db.models import Q

from stator.db.conditions import Condition
from stator.db.interface import Operations
from stator.db.retry import is_refusal
from stator.db.values import Pk
from stator.exceptions import Errors
from stator.extensions.refusals.refusals import Refusals

Result = TypeVar("Result")

# Refused rows that one part of a chore takes, at some statements each, before it leaves further rows to the next part.
AT_ONCE = 100


class NotRefused(Condition):
    """Rows whose change was refused are not tried again at once."""

    of_processes = True

    def __init__(self, store: Operations, earlier: Sequence[Condition]) -> None:
        super().__init__(store, earlier)
        self.refusals = Refusals(store.label)

    @property
    def is_silent(self) -> bool:  # type: ignore[override]
        """Whether nothing was refused."""
        return not self.refusals.held

    def rows(self, deed: str) -> Q | None:
        return self.refusals.others(deed) or None

    def pieces(self, deed: str, pks: list[Pk], write: Callable[[list[Pk]], Result], errors: Errors) -> list[Result]:
        """Return the results of ``write`` for these rows: all at once or, if that is refused, for each half, and so on.

        A row that is refused by itself is left out.
        """
        done: list[Result] = []
        left, refused = [pks] if pks else [], 0
        while left and refused < AT_ONCE:
            piece = left.pop()
            try:
                done.append(write(piece))
            except errors as error:
                if not is_refusal(error):
                    raise
                if len(piece) == 1:
                    self.refusals.note(deed, piece[0], error)
                    refused += 1
                else:
                    middle = len(piece) // 2
                    left += [piece[middle:], piece[:middle]]
        return done
