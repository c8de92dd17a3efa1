"""Saves in transactions that are rolled back, and then repeated with the same instance."""

from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction

from stator.models import move_rows
from tests.stator.making import put, raw, row
from tests.testapp.basic import Step
from tests.testapp.keys import BigKeyed, Branch
from tests.testapp.power import Site

pytestmark = pytest.mark.django_db(transaction=True)


class Undone(Exception):
    """Rolls a transaction back."""


def save(step: Any) -> None:
    step.state = "slow"
    step.save()


def save_state_only(step: Any) -> None:
    step.state = "slow"
    step.save(update_fields=["state"])


def save_and_refresh(step: Any) -> None:
    save(step)
    step.refresh_from_db()


def move(step: Any) -> None:
    step.transition_perform("slow")


def in_a_transaction(write: Any, step: Any) -> None:
    with suppress(Undone), transaction.atomic():
        write(step)
        assert row(step).state == "slow"
        raise Undone


def in_an_inner_block(write: Any, step: Any) -> None:
    with transaction.atomic():
        in_a_transaction(write, step)


def to_a_savepoint(write: Any, step: Any) -> None:
    with transaction.atomic():
        # By the name that Django has had for it since 6.1.
        savepoint = getattr(transaction, "savepoint_create", transaction.savepoint)()
        write(step)
        transaction.savepoint_rollback(savepoint)


def without_autocommit(write: Any, step: Any) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("a savepoint that is released without a transaction is committed")
    transaction.set_autocommit(False)
    try:
        write(step)
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)


each_way = pytest.mark.parametrize("undo", [in_a_transaction, in_an_inner_block, to_a_savepoint, without_autocommit])
each_write = pytest.mark.parametrize("write", [save, save_state_only, save_and_refresh, move])


@each_way
@each_write
def test_move_is_made_again(undo, write):
    step = put(Step)
    undo(write, step)
    assert (row(step).state, row(step).state_version) == ("new", 0)
    save(step)
    assert (row(step).state, row(step).state_version) == ("slow", 1)


@pytest.mark.parametrize("undo", [in_a_transaction, to_a_savepoint])
@each_write
def test_move_is_made_again_within_the_outer_transaction(undo, write):
    step = put(Step)
    with transaction.atomic():
        undo(write, step)
        save(step)
        step.save()
    assert (row(step).state, row(step).state_version) == ("slow", 1)


@each_way
@each_write
def test_object_that_is_put_back_by_hand_does_not_move(undo, write):
    step = put(Step)
    undo(write, step)
    step.state = "new"
    step.save()
    assert (row(step).state, row(step).state_version) == ("new", 0)


@each_way
@pytest.mark.parametrize("others", [["late"], ["late", "outside"]], ids=str)
def test_move_is_made_again_although_others_moved_the_object(undo, others):
    step = put(Step)
    undo(save, step)
    for state in others:
        move_rows(raw(Step).filter(pk=step.pk), state)
    save(step)
    assert (row(step).state, row(step).state_version) == ("slow", len(others) + 1)


@pytest.mark.parametrize("moves", [1, 2])
def test_move_that_was_committed_is_not_made_again(moves):
    step = put(Step)
    with transaction.atomic():
        save(step)
        step.save()
    for state in ("done", "failed")[:moves]:
        move_rows(raw(Step).filter(pk=step.pk), state)
    step.name = "b"
    step.save()
    found = row(step)
    assert (found.name, found.state, found.state_version) == ("b", ("done", "failed")[moves - 1], 1 + moves)


def test_refreshed_object_does_not_move_by_itself():
    step = put(Step)
    in_a_transaction(save, step)
    step.refresh_from_db()
    for state in ("late", "outside"):
        move_rows(raw(Step).filter(pk=step.pk), state)
        step.save()
    assert row(step).state == "outside"


def test_object_that_was_created_in_vain_is_created_again():
    step = Step(name="a")
    with suppress(Undone), transaction.atomic():
        step.save()
        raise Undone
    step.state = "done"
    step.save()
    assert (row(step).state, row(step).state_ready, row(step).state_version) == ("done", False, 0)


def test_child_moves_again():
    branch = put(Branch)
    with suppress(Undone), transaction.atomic():
        branch.state, branch.leaf = "last", "a"
        branch.save()
        raise Undone
    branch.save()
    assert (row(branch).leaf, raw(BigKeyed).get().state, raw(BigKeyed).get().state_version) == ("a", "last", 1)
    move_rows(raw(BigKeyed).all(), "first")
    branch.save()
    assert raw(BigKeyed).get().state == "first"


def change_domain(site: Any) -> None:
    site.domain = "b.example"
    site.save()


def change_domain_in_bulk(site: Any) -> None:
    site.domain = "b.example"
    Site.objects.bulk_update([site], ["domain"])


def change_domain_and_refresh(site: Any) -> None:
    change_domain(site)
    site.refresh_from_db()


def settled_site() -> Any:
    return put(Site, state="serving", state_ready=False, domain="a.example")


each_change = pytest.mark.parametrize("change", [change_domain, change_domain_in_bulk, change_domain_and_refresh])


@pytest.mark.parametrize("undo", [to_a_savepoint, without_autocommit])
@each_change
def test_watched_field_that_is_saved_again_is_reconciled(undo, change):
    site = settled_site()
    undo(change, site)
    assert row(site).state == "serving"
    change_domain(site)
    assert (row(site).state, row(site).domain) == ("checking", "b.example")


@pytest.mark.parametrize("undo", [to_a_savepoint, without_autocommit])
@each_change
def test_watched_field_that_is_put_back_by_hand_is_not_reconciled(undo, change):
    site = settled_site()
    undo(change, site)
    site.domain = "a.example"
    site.save()
    assert (row(site).state, row(site).state_version) == ("serving", 0)
