"""Every promise holds in 20,000 schedules, and a protocol with a mistake breaks one."""

import random

import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st

from tests.simulation.broken import BROKEN, GuardByState
from tests.simulation.schedule import schedule_of, simulate
from tests.simulation.store import Store

# The statements are those of SQLite whatever database the rest is tested on.
pytestmark = pytest.mark.sqlite

BLOCK = 2_000
BLOCKS = 10

# What must have happened in each block, or it says nothing of the promise.
EVENTS = {
    "kill", "pause", "lost request", "lost reply", "move", "unlock", "retry", "delete", "save", "clock back",
    "clock forward", "fenced", "reaped", "late but accepted", "quarantined",
}  # fmt: skip

# What takes a row from its holder.
TAKEN = ("reaped", "unlock", "retry", "move", "delete")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_schedule_breaks_a_promise(block):
    seen = set()
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = simulate(schedule_of(seed), Store)
        assert not run.violations, f"seed {seed}\n{run.story()}"
        seen |= run.seen.keys()
    assert EVENTS - seen == set()


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_mistake_is_found(broken):
    assert any(simulate(schedule_of(seed), broken).broken & BROKEN[broken] for seed in range(1_000))


def test_schedule_that_breaks_a_promise_shrinks_to_the_steps_that_matter():
    schedule = find(
        st.binary(min_size=1, max_size=60),
        lambda schedule: "I4" in simulate(schedule, GuardByState).broken,
        random=random.Random(1),
        settings=settings(max_examples=3_000, database=None, deadline=None, suppress_health_check=list(HealthCheck)),
    )

    assert len(schedule) <= 12
    # What is left is a handful of steps, of which one took the row from its holder. Hypothesis tries constants that it
    # finds in our code, so each change of the code may lead it to another one of these.
    seen = simulate(schedule, GuardByState).seen
    assert sum(seen[each] for each in TAKEN) == 1


def test_seed_is_a_reproduction():
    first, second = (simulate(schedule_of(7), Store) for _ in range(2))
    assert first.story() == second.story()
