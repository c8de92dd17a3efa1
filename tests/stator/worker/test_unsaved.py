"""Fields that a handler changes and does not save: an error in tests, and one line for each state in workers."""

from typing import Any

import pytest

from stator.runner import StatorRunner
from stator.testing import NotSaved, attempt, drain
from stator.worker.unsaved import LOOKS
from tests.testapp.operators import Parcel, ParcelGraph

pytestmark = pytest.mark.django_db


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces what a packed parcel's handler does before it moves the parcel on."""

    def use(function: Any) -> None:
        def handle(parcel: Parcel) -> Any:
            function(parcel)
            return ParcelGraph.stamped

        monkeypatch.setattr(ParcelGraph, "handle_packed", handle)
        monkeypatch.setattr(ParcelGraph.packed, "looks", LOOKS)

    return use


def forget(parcel: Parcel) -> None:
    parcel.address = "Main Street 2"


def save(parcel: Parcel) -> None:
    parcel.address = "Main Street 2"
    parcel.save()


def update(parcel: Parcel) -> None:
    Parcel.objects.filter(pk=parcel.pk).update(address="Main Street 2")
    parcel.refresh_from_db()


@pytest.mark.parametrize("run", [lambda parcel: drain(Parcel), attempt], ids=["drain", "attempt"])
def test_test_of_a_handler_that_forgets_to_save_fails_with_the_remedy(handler: Any, run: Any) -> None:
    handler(forget)
    parcel = Parcel.objects.create(address="Main Street 1")
    with pytest.raises(NotSaved, match=r"ParcelGraph.packed: the handler changed address of .*saves=\[...\]"):
        run(parcel)


@pytest.mark.parametrize("function", [save, update, lambda parcel: None], ids=["save", "update", "nothing"])
def test_handler_that_stores_what_it_changes_passes(handler: Any, function: Any) -> None:
    handler(function)
    Parcel.objects.create(address="Main Street 1")
    drain(Parcel)


def test_worker_warns_once_for_a_state(handler: Any, caplog: pytest.LogCaptureFixture) -> None:
    handler(forget)
    for _ in range(3):
        Parcel.objects.create(address="Main Street 1")
    StatorRunner([Parcel]).run_single_cycle()
    lines: list[Any] = [record for record in caplog.records if record.message == "stator.not_saved"]
    [line] = lines
    assert (line.model, line.state, line.fields) == ("testapp.parcel", "packed", "address")
    assert "saves=[...]" in line.remedy
    assert ParcelGraph.packed.looks == 0
