"""One call of a handler in progress, and the grouping of claims into calls."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from stator.db.interface import Claim
from stator.graph import State


class Attempt:
    """One call of a handler in progress.

    ``placed``: whether it has a place on the loop. ``task``: that of an asynchronous handler that has begun.
    ``cancelled_at``: when it was cancelled.
    """

    __slots__ = ("cancelled_at", "claims", "is_async", "label", "left", "placed", "task")

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.left = len(claims)
        self.label = claims[0].operations.label
        self.is_async = claims[0].state.is_async
        self.placed = False
        self.task: asyncio.Task[None] | None = None
        self.cancelled_at: float | None = None


def grouped(claims: list[Claim]) -> Iterator[list[Claim]]:
    """Yield the claims of each attempt: one, or up to ``batch`` claims of one state."""
    batches: dict[State, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.state.batch:
            batches[claim.state].append(claim)
        else:
            yield [claim]
    for state, group in batches.items():
        size = state.batch or 1
        yield from (group[start : start + size] for start in range(0, len(group), size))
