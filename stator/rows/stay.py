"""How long objects were in a state that they left."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from django.db.models import Min, Model, QuerySet, Sum

from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.clock import Elapsed


@dataclass(frozen=True, slots=True)
class Stay:
    """How long objects were in a state that they left: total seconds, the longest, and the number of moves."""

    seconds: float
    longest: float
    moves: int = 0

    @classmethod
    def of(cls, rows: QuerySet[Model], each: dict[Hashable, float | None] | None = None) -> "Stay":
        """Return the stay of rows that are about to leave their state, by the database's clock.

        ``each``: gets the seconds of each row by its key.
        """
        if each is not None:
            seconds = {pk: seconds_of(stayed) for pk, stayed in rows.values_list("pk", columns.stayed())}
            each |= seconds
            return cls.of_each(seconds.values())
        longest = Elapsed(Min("state_changed"))
        total = rows.aggregate(seconds=Sum(columns.stayed()), longest=longest)
        return cls(seconds_of(total["seconds"]), seconds_of(total["longest"]))

    @classmethod
    def of_each(cls, each: Collection[float]) -> "Stay":
        """Return the times of rows as one."""
        return cls(sum(each), max(each, default=0.0))

    @property
    def average(self) -> float:
        """Average seconds of one move."""
        return self.seconds / self.moves if self.moves else 0.0
