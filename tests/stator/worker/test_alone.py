"""Objects that lost many leases: in the process of their worker, once nothing else runs there."""

from types import SimpleNamespace

import pytest

from stator.worker import alone as module
from stator.worker.alone import PATIENCE, Alone
from tests.stator.worker.fakes import FakeClaim, FakeOperations


class Within:
    """A process that runs so many attempts."""

    def __init__(self):
        self.runs = 0
        self.alone = Alone(self.begin, lambda: not self.runs)

    def begin(self, claims):
        self.runs += len(claims)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_others_wait_for_the_process_to_become_empty_and_then_for_the_object(clock):
    within = Within()
    alone, within.runs = within.alone, 3
    assert not alone.needs_room(False)
    assert alone.needs_room(True)
    assert not alone.has_room()
    within.runs = 0
    assert alone.has_room()
    alone.begin([FakeClaim(FakeOperations())])
    assert alone.needs_room(False)
    assert not alone.has_room()
    within.runs = 0
    assert not alone.needs_room(False)


@pytest.mark.parametrize("empties", [False, True], ids=["never empty", "the object runs for long"])
def test_others_never_wait_longer_than_they_go_on_before_and_after(clock, empties):
    within = Within()
    alone, within.runs, waited = within.alone, 1, []
    for _ in range(60):
        waited.append(alone.needs_room(True))
        if empties and alone.has_room():
            alone.begin([FakeClaim(FakeOperations())])
        within.runs = max(within.runs, 1) if not empties or within.runs else 0
        clock.now += PATIENCE / 5
    turns = "".join("w" if waits else "." for waits in waited)
    assert "w" * 6 not in turns
    assert "." * 5 in turns
