"""The checker against histories made by hand: what a broken protocol (``tests/simulation``) cannot bring about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.faults.checker import Rules, check, kinds_of
from tests.faults.events import Effect, Event, History, Row

A, B = "a:1", "b:2"
FIRST, SECOND, THIRD = (UUID(int=number) for number in range(1, 4))
START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = 3.0
EDGES = frozenset({("fresh", "halfway"), ("halfway", "done")})
RULES = Rules(edges=EDGES, terminal=frozenset({"done"}), initial="fresh")
ATOMIC = replace(RULES, atomic=frozenset({"fresh"}))
PROMPT = replace(RULES, reap_slack=2.0, claim_slack=2.0)


class Script:
    """Writes a history one step at a time, a second apart; every step can be told to go wrong."""

    def __init__(self):
        self.row = None
        self.clock = START
        self.events = []
        self.effects = []
        self.change("operator", Row("fresh"))

    def change(self, actor, row, after=1.0):
        self.clock += timedelta(seconds=after)
        self.events.append(Event("7", self.clock, actor, self.row, row))
        self.row = row
        return self

    def claim(self, actor, claim, started=True, after=1.0, **wrong):
        until = self.clock + timedelta(seconds=after + LEASE)
        taken = {"claim": claim, "locked_until": until, "ready": False, "attempts": self.row.attempts + 1}
        self.change(actor, replace(self.row, **{**taken, **wrong}), after)
        return self.start(actor) if started else self

    def start(self, actor, **wrong):
        row = self.row
        effect = Effect("7", row.version, row.state, row.claim, self.clock, actor)
        self.effects.append(replace(effect, **wrong))
        return self

    def renew(self, actor):
        return self.change(actor, replace(self.row, locked_until=self.clock + timedelta(seconds=1 + LEASE)))

    def move(self, actor, state, **wrong):
        entered = {"state": state, "version": self.row.version + 1, "ready": state != "done"}
        return self.change(actor, Row(**{**entered, **wrong}))

    def reap(self, actor, after=LEASE + 1):
        freed = replace(self.row, claim=None, locked_until=None, ready=True, crashes=self.row.crashes + 1)
        return self.change(actor, freed, after)

    def without(self, number):
        """A hole in the log."""
        del self.events[number]
        return self

    def broken(self, rules=RULES):
        return kinds_of(check(History(self.events, self.effects), rules))


def finished(script):
    """The rest of a good life, from the first state on."""
    return script.claim(A, SECOND).move(A, "halfway").claim(B, THIRD).move(B, "done")


@pytest.mark.parametrize(
    ("rule", "script"),
    [
        ("I1", finished(Script().claim(A, FIRST).renew(B).reap(B))),
        ("I2", Script().claim(A, FIRST).move(A, "done")),
        ("I2", finished(Script()).without(2)),
        ("I3", finished(Script().claim(A, FIRST).start(A, claim=THIRD).reap(B))),
        ("I3", finished(Script().start(A, version=7))),
        ("I3", Script().claim(A, FIRST, started=False).move(A, "halfway").move("operator", "done")),
        ("I7", Script().claim(A, FIRST).move(A, "halfway")),
        ("I7", Script().claim(A, FIRST)),
    ],
)
def test_broken_histories_are_caught(rule, script):
    assert rule in script.broken(ATOMIC)


@pytest.mark.parametrize(
    "script",
    [
        finished(Script().claim(A, FIRST).reap(B, after=LEASE + 3)),
        Script().claim(A, FIRST).reap(B).claim(B, SECOND, after=3).move(B, "halfway").move("operator", "done"),
    ],
    ids=["reaped late", "claimed late"],
)
def test_slow_recovery_is_caught_when_it_is_judged(script):
    assert script.broken(PROMPT) == {"I8"}
    assert script.broken(RULES) == set()


def test_lease_beyond_the_longest_may_be_reaped_for_the_clock_was_set_back():
    script = finished(Script().claim(A, FIRST).reap(B, after=-3600))

    assert "I1" in script.broken()
    assert "I1" not in script.broken(replace(RULES, longest_lease=LEASE))
