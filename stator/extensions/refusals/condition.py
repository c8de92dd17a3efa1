"""Which rows the database has refused to this process lately, and how it goes on with the others."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db.models import Q

from stator.db.conditions import Condition
from stator.db.interface import Operations
from stator.db.values import Pk
from stator.exceptions import Errors
from stator.extensions.refusals.refusals import Refusals, in_pieces

Result = TypeVar("Result")


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
        return in_pieces(self.refusals, deed, pks, write, errors)
