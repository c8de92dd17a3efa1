"""How a duty is repeated until nothing is left."""

from types import SimpleNamespace

import pytest

from stator.capabilities import POSTGRESQL, SQLITE
from stator.worker import duties
from stator.worker.duties import Duty, perform


def model_on(capabilities):
    return SimpleNamespace(capabilities=capabilities, slices=())


def parts(*counts):
    """A chore that does so many rows in each of its parts."""
    left = list(counts)
    return left, lambda operations, limit: left.pop(0)


@pytest.fixture
def pauses(monkeypatch):
    """The seconds of each pause; a part takes 0.1 s, and the last one 9 s."""
    clock, found = iter([10.0, 10.1, 20.0, 29.0, 30.0]), []
    monkeypatch.setattr(duties, "monotonic", lambda: next(clock))
    monkeypatch.setattr(duties, "sleep", found.append)
    return found


def test_others_can_write_between_the_parts_where_there_is_one_writer(pauses):
    left, chore = parts(2, 2, 1)
    perform(Duty("rename", chore, limit=2, gives_way=True), model_on(SQLITE), stopped=lambda: False)
    assert (left, pauses) == ([], [pytest.approx(0.1), duties.MAX_PAUSE])


@pytest.mark.parametrize(("capabilities", "gives_way"), [(POSTGRESQL, True), (SQLITE, False)])
def test_other_duties_and_databases_go_on_at_once(pauses, capabilities, gives_way):
    left, chore = parts(2, 2, 1)
    perform(Duty("rename", chore, limit=2, gives_way=gives_way), model_on(capabilities), stopped=lambda: False)
    assert (left, pauses) == ([], [])


def test_no_part_is_begun_after_a_stop():
    left, chore = parts(2, 2, 1)
    perform(Duty("rename", chore, limit=2), model_on(POSTGRESQL), stopped=lambda: len(left) < 2)
    assert left == [1]
