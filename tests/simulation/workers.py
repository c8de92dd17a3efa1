"""Workers as generators: each yields one statement, gets its reply, and may be ended or held up in between."""

from collections.abc import Callable, Generator
from typing import Any
from uuid import UUID

from stator.rows.claimable import Crashes
from tests.simulation.statements import (
    LEASE,
    NEXT,
    RELEASED,
    Claim,
    HandBack,
    Held,
    Lost,
    Outcome,
    Record,
    Renew,
    Start,
)

Steps = Generator[Any, Any, None]

# A handler does one of these, by the byte that it draws: mostly it moves its object.
OUTCOMES = ("move", "move", "move", "wait", "fail", "move")


class Worker:
    """One worker process. ``draw`` gives the next byte of the schedule, ``clock`` the monotonic time."""

    def __init__(self, number: int, draw: Callable[[], int], clock: Callable[[], float]) -> None:
        self.name = f"worker:{number}"
        self._number = number
        self._draw = draw
        self._clock = clock
        self._claims = 0

    def run(self) -> Steps:
        """Claim, run and record, for ever."""
        while True:
            for crashes in Crashes:
                yield from self.claim(crashes)

    def claim(self, crashes: Crashes) -> Steps:
        """Claim some rows and take one after the other."""
        token = self.new_token()
        try:
            taken = yield Claim(token, 1 if crashes is Crashes.MANY else 1 + self._draw() % 2, crashes)
        except Lost:
            yield from self.hand_back(token)
            return
        for held in taken:
            yield from self.attempt(held)

    def new_token(self) -> UUID:
        """A token that no claim had before."""
        self._claims += 1
        return UUID(int=self._number << 32 | self._claims)

    def hand_back(self, token: UUID) -> Steps:
        """Release what the claim without a reply took."""
        while True:
            try:
                yield HandBack(token)
            except Lost:
                continue
            return

    def attempt(self, held: Held) -> Steps:
        """Run the handler of one row, perhaps with a heartbeat, and record what came of it."""
        if self._clock() >= held.deadline:
            yield from self.record(held, RELEASED)
            return
        yield Start(held)
        if self._draw() % 4 == 3 and not (yield from self.renew(held)):
            return
        kind = OUTCOMES[self._draw() % len(OUTCOMES)]
        yield from self.record(held, Outcome(NEXT[held.state] if kind == "move" else None, failed=kind == "fail"))

    def renew(self, held: Held) -> Generator[Any, Any, bool]:
        """Send a heartbeat; return whether the handler may go on."""
        try:
            return bool((yield Renew(held)))
        except Lost:
            return True

    def record(self, held: Held, outcome: Outcome) -> Steps:
        """Write the outcome, again and again until there is a reply."""
        again = False
        while True:
            try:
                yield Record(held, outcome, again)
            except Lost:
                again = True
                continue
            return


def deadline(asked: float) -> float:
    """When a worker must have started what it asked for at that monotonic time: four fifths of the lease later."""
    return asked + 0.8 * LEASE
