"""How the rows of a store are divided into parts, each of them a store as well: here not at all."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Model, QuerySet

from stator.graph import State
from stator.rows.claimable import Crashes
from stator.statements import Statement

if TYPE_CHECKING:
    from stator.db.interface import Claim, Operations
    from stator.db.probe import Open


class Undivided:
    """The rows of a store in one part, which is the store itself. What divides rows overrides this.

    ``is_divided``: claims and records are for one part each. ``may_be_divided``: that may change. ``spans``: the parts
    are on several nodes. ``is_limited``: the store itself is a part. ``has_own_text``: its statements have a text of
    their own. ``moves``: the columns that say in which part a row is now, if the project may change them.
    """

    is_divided = may_be_divided = spans = is_limited = has_own_text = False
    moves: tuple[str, ...] = ()

    def __init__(self, store: "Operations") -> None:
        self.store = store

    @property
    def key(self) -> Hashable:
        """What tells statements of parts from those of others: parts share theirs, unless they have their own."""
        return self.is_limited, self.store.part if self.has_own_text else None

    @property
    def template(self) -> "Operations":
        """The store that makes the statements which all parts share: its value is given as ``part``."""
        return self.store

    @property
    def anywhere(self) -> QuerySet[Model]:
        """Where rows of the store are, even if the project has moved them to another part since."""
        rows: QuerySet[Model] = self.store.rows
        return rows

    def parts(self) -> "list[Operations]":
        """Return the stores for which chores are done."""
        return [self.store]

    def parts_with(self, *rows: QuerySet[Model]) -> "list[Operations]":
        """Return the stores of :meth:`parts` with rows of these querysets; if there are very many, some may miss."""
        return [self.store]

    def part_with(self, row: object) -> "Operations":
        """Return the store with an object."""
        return self.store

    def parts_of(self, rows: Sequence[object]) -> "list[Operations]":
        """Return the store with each of some objects; asks once whether there are several."""
        return list(map(self.part_with, rows)) if self.is_divided else [self.store] * len(rows)

    def at(self, value: object) -> "Operations":
        """Return the store of the part that a value tells from others."""
        return self.store

    def near(self, row: object) -> "Operations":
        """Return :meth:`part_with`, for a statement about one row also if claims are not divided."""
        return self.store

    def counts(self, kinds: Sequence[QuerySet[Model]], most: int) -> list[int]:
        """Return how many rows of each kind there are, counted up to ``most``."""
        return [rows.order_by().values("pk")[:most].count() for rows in kinds]

    def shares(self, picked: QuerySet[Model], limit: int) -> "Iterator[tuple[Operations, int]]":
        """Yield the stores with the first rows that were picked, each with how many they are."""
        yield self.store, limit

    def claim(
        self, states: list[State], limit: int, *, token: UUID | None = None, crashes: Crashes = Crashes.NONE
    ) -> "list[Claim]":
        """Claim in the parts, each of which has its turn."""
        return self.store.claim_together(states, limit, token=token, crashes=crashes)

    def enough(self, limit: int) -> int:
        """Return how many rows a claim of at most ``limit`` brings if there may be more."""
        return limit

    def release_token(self, token: object) -> int:
        """Release the rows of a claim statement in parts on several nodes; return how many."""
        raise NotImplementedError

    def answers(self, open_rows: "Open") -> list[object] | None:
        """Return the answers of a poll by a statement of its own; None if the statement for all models has them."""
        return None

    def only_mine(self, records: QuerySet[Model]) -> QuerySet[Model]:
        """Return those of some records that are beside the rows of the store."""
        return records

    def sharing_by(self, name: str | None) -> str | None:
        """Return the name of the field whose values share a claim; ``name``: that of the model."""
        return name

    def within(self, table: str) -> Statement:
        """Return the condition of the rows of a part, after others; nothing if the store has all rows."""
        return Statement("")


@dataclass(slots=True)
class Divisions:
    """How stores are divided; what divides them says so. ``of``: return the division of a new store."""

    of: "Callable[[Operations], Undivided]" = Undivided


DIVISIONS = Divisions()
