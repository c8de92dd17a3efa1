"""The checker against histories made by hand: a good one, and for every rule ones that break it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.faults.checker import Rules, check, kinds_of
from tests.faults.events import Effect, Event, History, Kind, Row

A, B = "a:1", "b:2"
FIRST, SECOND, THIRD, FOURTH = (UUID(int=number) for number in range(1, 5))
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


@pytest.mark.parametrize(
    ("rule", "script"),
    [
        ("I1", finished(Script().claim(A, FIRST).claim(B, SECOND, attempts=2).reap(A))),
        ("I1", finished(Script().claim(A, FIRST).renew(B).reap(B))),
        ("I1", finished(Script().claim(A, FIRST).reap(B, after=LEASE - 1))),
        ("I1", Script().claim(A, FIRST, locked_until=START).move(A, "halfway").move("operator", "done")),
        ("I1", finished(Script().claim(A, FIRST).wait(A).claim(A, THIRD).move("operator", "fresh"))),
        ("I2", Script().claim(A, FIRST).move(A, "done")),
        ("I2", Script().claim(A, FIRST).move(A, "halfway", version=2).move("operator", "done")),
        ("I2", Script().move(A, "halfway").move("operator", "done")),
        ("I2", Script().change("operator", Row("fresh", attempts=1, ready=False)).move("operator", "done")),
        ("I3", finished(Script().claim(A, FIRST).start(A).wait(A).change(A, Row("fresh", attempts=1)))),
        ("I3", finished(Script().claim(A, FIRST).start(A, claim=THIRD).reap(B))),
        ("I3", Script().claim(A, FIRST, started=False).move(A, "halfway").move("operator", "done")),
        ("I4", Script().claim(A, FIRST).reap(B).claim(B, SECOND).move(A, "halfway").move("operator", "done")),
        ("I4", finished(Script().claim(A, FIRST).wait(B).change(A, Row("fresh", attempts=1)))),
        ("I4", finished(Script().claim(A, FIRST).free(B, ready=True))),
        ("I5", Script().claim(A, FIRST)),
        ("I5", finished(Script().claim(A, SECOND).move("operator", "fresh"))),
        ("I6", finished(Script().claim(A, FIRST, attempts=0).reap(B))),
        ("I6", finished(Script().claim(A, FIRST).reap(B).claim(B, THIRD, crashes=0).move("operator", "fresh"))),
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


def test_histories_tell_what_each_event_was():
    script = Script().claim(A, FIRST).renew(A).reap(B).claim(B, SECOND).release(B)
    script.claim(A, THIRD).wait(A).delete("operator")

    kinds = History(script.events).kinds()

    assert kinds == [
        Kind.CREATE, Kind.CLAIM, Kind.RENEW, Kind.REAP, Kind.CLAIM, Kind.RELEASE, Kind.CLAIM, Kind.WAIT, Kind.DELETE
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "rules", "script"),
    [
        (
            "I1",
            RULES,
            Script().claim(A, FIRST).reap(B).claim(B, SECOND).reap(A).claim(A, THIRD).reap(B).claim(A, FOURTH),
        ),
        ("I3", ATOMIC, finished(Script().start(A, version=7))),
        ("I3", ATOMIC, Script().claim(A, FIRST, started=False).move(A, "halfway").move("operator", "done")),
        ("I8", replace(RULES, due_slack=2.0), Script().claim(A, FIRST, after=3).move(A, "halfway").delete("operator")),
    ],
    ids=["claimed in quarantine", "effect without a move", "move without its effect", "claimed long after it was due"],
)
def test_rules_that_say_more_are_judged(rule, rules, script):
    assert rule in script.broken(rules)


def test_row_that_waits_for_its_due_time_is_not_late():
    script = Script()
    due = script.clock + timedelta(seconds=60)
    script.claim(A, FIRST).free(A, next_attempt=due)
    script.change(B, replace(script.row, ready=True), after=58).claim(A, SECOND).move(A, "halfway")

    assert script.broken(replace(RULES, due_slack=2.0, quiet=False)) == set()


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


def test_two_holders_of_an_exclusive_key_are_caught():
    row, other = Row("fresh", key="a"), Row("fresh", key="b")
    begun = [("1", "operator", row), ("2", "operator", row), ("3", "operator", other), ("1", A, taken(row, FIRST))]
    rules = replace(RULES, quiet=False, started=False)

    assert kinds_of(check(several(*begun, ("2", B, taken(row, SECOND))), rules)) == {"I9"}
    assert check(several(*begun, ("3", B, taken(other, SECOND))), rules) == []
    freed = ("1", A, replace(row, attempts=1, ready=False))
    assert check(several(*begun, freed, ("2", B, taken(row, SECOND))), rules) == []


def test_urgent_row_that_is_passed_over_is_caught():
    urgent, other = Row("fresh", priority=0), Row("fresh", priority=5)
    begun = [("1", "operator", other), ("2", "operator", urgent), ("1", A, taken(other, FIRST))]
    rules = replace(RULES, quiet=False, started=False)

    assert kinds_of(check(several(*begun), replace(rules, passed_over=0))) == {"I10"}
    assert check(several(*begun), replace(rules, passed_over=1)) == []
    assert (
        check(several(begun[1], begun[0], ("2", A, taken(urgent, SECOND)), begun[2]), replace(rules, passed_over=0))
        == []
    )
    together = several(*begun, ("2", A, taken(urgent, FIRST)))
    assert check(together, replace(rules, passed_over=0)) == []
