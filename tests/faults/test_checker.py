"""The checker against histories made by hand: a good one, and for every rule ones that break it."""

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

    def free(self, actor, after=1.0, **changed):
        return self.change(actor, replace(self.row, claim=None, locked_until=None, **changed), after)

    def wait(self, actor):
        return self.free(actor, crashes=0)

    def release(self, actor):
        return self.free(actor, ready=True, attempts=self.row.attempts - 1)

    def reap(self, actor, after=LEASE + 1):
        return self.free(actor, after, ready=True, crashes=self.row.crashes + 1)

    def delete(self, actor):
        return self.change(actor, None)

    def broken(self, rules=RULES):
        return kinds_of(check(History(self.events, self.effects), rules))


def finished(script):
    """The rest of a good life, from the first state on."""
    return script.claim(A, SECOND).move(A, "halfway").claim(B, THIRD).move(B, "done")


@pytest.mark.parametrize(
    "script",
    [
        finished(Script()),
        finished(Script().claim(B, FIRST).renew(B).renew(B).reap(A)),
        finished(Script().claim(B, FIRST).wait(B).change(B, Row("fresh", attempts=1))),
        finished(Script().claim(B, FIRST, started=False).release(B)),
        finished(Script().claim(B, FIRST).free("operator", ready=True)),
        finished(Script().claim(B, FIRST).move("operator", "fresh")),
        Script().claim(A, FIRST).move("operator", "done"),
        Script().claim(A, FIRST).delete("operator"),
        Script().claim(A, FIRST).reap(B).claim(B, SECOND).reap(A).claim(A, THIRD).reap(A),
    ],
    ids=["plain", "reaped", "waited", "released", "unlocked", "moved", "ended", "deleted", "quarantined"],
)
def test_good_histories_pass(script):
    assert script.broken() == set()


# One for each rule; tests/simulation breaks the protocol itself in many more ways.
@pytest.mark.parametrize(
    ("rule", "script"),
    [
        ("I1", finished(Script().claim(A, FIRST).renew(B).reap(B))),
        ("I1", Script().claim(A, FIRST, locked_until=START).move(A, "halfway").move("operator", "done")),
        ("I2", Script().claim(A, FIRST).move(A, "done")),
        ("I2", Script().claim(A, FIRST).move(A, "halfway", version=2).move("operator", "done")),
        ("I3", finished(Script().claim(A, FIRST).start(A).wait(A).change(A, Row("fresh", attempts=1)))),
        ("I3", finished(Script().claim(A, FIRST).start(A, claim=THIRD).reap(B))),
        ("I4", Script().claim(A, FIRST).reap(B).claim(B, SECOND).move(A, "halfway").move("operator", "done")),
        ("I4", finished(Script().claim(A, FIRST).wait(B).change(A, Row("fresh", attempts=1)))),
        ("I5", finished(Script().claim(A, SECOND).move("operator", "fresh"))),
        ("I6", finished(Script().claim(A, FIRST, attempts=0).reap(B))),
        ("I7", Script().claim(A, FIRST).move(A, "halfway")),
        ("I7", Script().claim(A, FIRST)),
    ],
)
def test_broken_histories_are_caught(rule, script):
    assert rule in script.broken()


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


def test_a_hole_in_the_log_is_caught():
    script = finished(Script())
    del script.events[2]

    assert "I2" in script.broken()


def test_a_handler_that_ran_on_nothing_is_caught():
    script = finished(Script())
    script.effects.append(replace(script.effects[0], pk="8"))

    assert script.broken() == {"I3"}


@pytest.mark.parametrize(
    "script",
    [
        finished(Script().start(A, version=7)),
        Script().claim(A, FIRST, started=False).move(A, "halfway").move("operator", "done"),
    ],
    ids=["effect without a move", "move without its effect"],
)
def test_effects_of_atomic_states_are_judged(script):
    assert "I3" in script.broken(ATOMIC)


def test_lease_beyond_the_longest_may_be_reaped_for_the_clock_was_set_back():
    script = finished(Script().claim(A, FIRST).reap(B, after=-3600))

    assert "I1" in script.broken()
    assert "I1" not in script.broken(replace(RULES, longest_lease=LEASE))


def several(*changes):
    """The history of rows that begin as given, and of what happens to them, a second apart."""
    events, rows = [], {}
    for number, (pk, actor, row) in enumerate(changes):
        events.append(Event(pk, START + timedelta(seconds=number), actor, rows.get(pk), row))
        rows[pk] = row
    return History(events)


def taken(row, claim):
    return replace(row, claim=claim, locked_until=START + timedelta(hours=1), ready=False, attempts=1)


def test_exclusive_keys_and_priorities_are_judged():
    """That they are broken is tried in tests/simulation; here, what is no fault."""
    row, other = Row("fresh", key="a"), Row("fresh", key="b", priority=5)
    begun = [("1", "operator", row), ("2", "operator", row), ("3", "operator", other), ("1", A, taken(row, FIRST))]
    rules = replace(RULES, quiet=False, started=False, passed_over=0)

    assert kinds_of(check(several(*begun, ("2", B, taken(row, SECOND))), rules)) == {"I9"}
    assert check(several(*begun, ("3", B, taken(other, SECOND))), rules) == []
    freed = ("1", A, replace(row, attempts=1, ready=False))
    assert check(several(*begun, freed, ("2", B, taken(row, SECOND))), rules) == []
    late = [*begun[:3], ("3", A, taken(other, FIRST))]
    assert kinds_of(check(several(*late), rules)) == {"I10"}
    assert check(several(*late), replace(rules, passed_over=1)) == []
    assert kinds_of(check(several(*late, ("1", A, taken(row, FIRST)), ("2", A, taken(row, FIRST))), rules)) == {"I9"}
