"""After a rollback an instance is as it was before, and what it was used for can be repeated with it."""

from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from stator.graph.running import RUNNING
from stator.models import Action, move_rows
from tests.stator.making import claim_all, operations_of, put, raw, row
from tests.testapp.approvals import Expense, Packet
from tests.testapp.basic import Step
from tests.testapp.keys import BigKeyed, Branch, Seat, TextKeyed
from tests.testapp.power import Site

pytestmark = pytest.mark.django_db(transaction=True)


class Undone(Exception):
    """Rolls a transaction back."""


def save(step: Any) -> None:
    step.state = "slow"
    step.save()
    assert row(step).state == "slow"


def in_a_transaction(write: Any, step: Any) -> None:
    with suppress(Undone), transaction.atomic():
        write(step)
        raise Undone


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


each_way = pytest.mark.parametrize("undo", [in_a_transaction, to_a_savepoint, without_autocommit])


def attributes(instance: Any) -> dict[str, Any]:
    """Everything that the instance has, and whether it is saved, and where."""
    values = {name: value for name, value in vars(instance).items() if name != "_state"}
    return {**values, "is saved": (not instance._state.adding, instance._state.db)}


def assign(instance: Any) -> None:
    instance.state = "slow"


def settled_site() -> Any:
    return put(Site, state="serving", state_ready=False, domain="a.example")


def set_domain(site: Any) -> None:
    site.domain = "b.example"


def save_many(instance: Any) -> None:
    type(instance).objects.bulk_create([instance])


# By what they are: an instance, what its user does before the transaction, and the call within it.
CALLS = {
    "move by hand": (lambda: put(Step), None, lambda step: step.transition_perform("slow", actor="ann")),
    "move by hand of async code": (
        lambda: put(Step), None, lambda step: async_to_sync(step.atransition_perform)("slow"),
    ),
    "move by hand of a child": (lambda: put(Branch), None, lambda branch: branch.transition_perform("last")),
    "move by hand with a composite key": (
        lambda: put(Seat, hall=1, number=2), None, lambda seat: seat.transition_perform("sold"),
    ),
    "event that moves": (lambda: put(Packet), None, lambda packet: packet.stator.send("pack", {"note": "x"}, by="ann")),
    "event of async code": (
        lambda: put(Packet), None, lambda packet: async_to_sync(packet.stator.asend)("pack", {"note": "x"}, by="ann"),
    ),
    "event that makes ready": (
        lambda: put(Expense, state="approved", state_ready=False), None, lambda expense: expense.stator.send("hurry"),
    ),
    "save of a state": (lambda: put(Step), assign, lambda step: step.save()),
    "save of the state alone": (lambda: put(Step), assign, lambda step: step.save(update_fields=["state"])),
    "save of a watched field": (settled_site, set_domain, lambda site: site.save()),  # stator.extensions.reconcile
    "save of a new instance": (lambda: Step(name="a"), None, lambda step: step.save()),
    "save of a new child": (lambda: Branch(), None, lambda branch: branch.save()),
    "save of a new instance with a key": (lambda: TextKeyed(pk="a"), None, lambda keyed: keyed.save()),
    "bulk_create": (lambda: Step(name="a"), None, save_many),
    "new action": (
        lambda: Action.of(Step, "move", "ann", moves=True), None,
        lambda action: [put(Step), Step.stator.all().move("slow", action=action)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_instance_is_as_it_was_before(name):
    """``test_rollbacks.py`` has every way in which a transaction ends."""
    make, prepare, call = CALLS[name]
    instance = make()
    if prepare:
        prepare(instance)
    before = attributes(instance)
    in_a_transaction(call, instance)
    assert attributes(instance) == before
    with transaction.atomic():
        to_a_savepoint(call, instance)
    assert attributes(instance) == before
    with transaction.atomic():
        call(instance)
        in_a_transaction(lambda instance: instance.save(), instance)
    # What is committed stays.
    assert attributes(instance) != before


@pytest.mark.django_db
@pytest.mark.parametrize("name", CALLS)
def test_instance_is_as_it_was_before_in_the_transaction_of_a_test_case(name, django_capture_on_commit_callbacks):
    make, prepare, call = CALLS[name]
    instance = make()
    if prepare:
        prepare(instance)
    before = attributes(instance)
    with django_capture_on_commit_callbacks() as callbacks:
        in_a_transaction(call, instance)
    assert (attributes(instance), callbacks) == (before, [])


def test_state_that_was_assigned_after_the_call_is_still_assigned():
    step = put(Step)

    def move_and_assign(step):
        step.transition_perform("slow")
        step.state = "outside"

    in_a_transaction(move_and_assign, step)
    assert (step.state, step.state_version) == ("outside", 0)
    step.save()
    assert (row(step).state, row(step).state_version) == ("outside", 1)


@pytest.mark.parametrize("call", [lambda step: step.transition_perform("slow"), save], ids=["move", "save"])
def test_claim_holds_again(call):
    put(Step)
    [claim] = claim_all(operations_of(Step))
    step = claim.instance
    step.stator = claim
    running = RUNNING.set([claim])
    in_a_transaction(call, step)
    RUNNING.reset(running)
    assert step.__dict__["stator"] is claim
    assert claim.own_end == ""
    assert claim.still_mine()


def test_claim_ends_when_it_did_before_it_was_extended():
    put(Step)
    [claim] = claim_all(operations_of(Step))
    before = claim.deadline, claim.max_runtime
    in_a_transaction(lambda claim: claim.extend(6000), claim)
    assert (claim.deadline, claim.max_runtime) == before
    with transaction.atomic():
        assert claim.extend(600)
    assert claim.deadline > before[0]


@pytest.mark.parametrize("undo", [in_a_transaction, to_a_savepoint])
def test_rollback_undoes_what_came_after_the_savepoint_alone(undo):
    step = put(Step)
    with transaction.atomic():
        step.transition_perform("slow")
        undo(lambda step: step.transition_perform("done"), step)
        assert (step.state, step.state_version) == ("slow", 1)
    assert (step.state, row(step).state) == ("slow", "slow")


def test_instance_whose_key_went_to_another_does_not_overwrite_it():
    step = Step(name="mine")
    in_a_transaction(lambda step: step.save(), step)
    others = [Step.objects.create(name="other") for _ in range(3)]
    step.save()
    assert [row(other).name for other in others] == ["other"] * 3
    assert row(step).name == "mine"


@each_way
def test_move_is_made_again(undo):
    step = put(Step)
    undo(save, step)
    assert (row(step).state, row(step).state_version) == ("new", 0)
    save(step)
    assert (row(step).state, row(step).state_version) == ("slow", 1)


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


@pytest.mark.needs("reconcile")
@pytest.mark.parametrize("change", [change_domain, change_domain_in_bulk, change_domain_and_refresh])
def test_watched_field_that_is_saved_again_is_reconciled(change):
    site = settled_site()
    in_a_transaction(change, site)
    assert row(site).state == "serving"
    change_domain(site)
    assert (row(site).state, row(site).domain) == ("checking", "b.example")
