"""Fields that a handler changes and does not save are an error in tests."""

from typing import Any

import pytest

from stator.testing import NotSaved, attempt, drain
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


@pytest.mark.parametrize(
    "end", [Parcel.delete, lambda parcel: parcel.transition_perform("sent")], ids=["delete", "move"]
)
def test_handler_that_ends_its_own_claim_is_told_so_and_not_of_fields(handler: Any, end: Any) -> None:
    handler(lambda parcel: forget(parcel) or end(parcel))
    Parcel.objects.create(address="Main Street 1")
    drain(Parcel)
