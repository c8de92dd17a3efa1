"""Events: an object takes those that its state waits for, once, from those who may send them, and nothing else."""

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.db import transaction

from stator.exceptions import EventRefused
from stator.graph.outcomes import Moved
from stator.models import Event, History
from stator.testing import drain
from tests.stator.making import ago, at_once, claim_all, operations_of, put, raw, row
from tests.testapp.approvals import Expense, ExpenseGraph, Packet

pytestmark = pytest.mark.django_db


@pytest.fixture
def approvers():
    may = Permission.objects.get(codename="change_expense")
    users = [User.objects.create_user(name) for name in ("anna", "ben", "ina")]
    for user in users:
        user.user_permissions.add(may)
    return users


def approve(expense, user, **payload):
    return expense.stator.send("approve", {"note": "ok", **payload}, by=user)


def refused(expense, name, *args, **options):
    before, events = row(expense), Event.objects.count()
    with pytest.raises(EventRefused) as caught:
        expense.stator.send(name, *args, **options)
    now = row(expense)
    assert (now.state, now.state_version) == (before.state, before.state_version)
    assert Event.objects.count() == events
    return str(caught.value)


def test_object_moves_when_enough_different_people_have_sent_its_event(approvers):
    anna, ben, _ = approvers
    expense = Expense.objects.create()
    first = approve(expense, anna)
    assert (first.outcome, first.missing, expense.state) == ("counted", 1, "submitted")
    assert "has 'approve' from anna already" in refused(expense, "approve", {"note": "again"}, by=anna)
    second = approve(expense, ben, amount="12.50")
    assert (second.outcome, second.missing, expense.state) == ("moved", 0, "approved")
    acts = History.objects.order_by("pk").values_list("kind", "source", "to", "actor", "reason")
    assert list(acts) == [
        ("event", "submitted", "", "anna", 'approve {"note": "ok", "amount": null} (1 of 2)'),
        ("event", "submitted", "approved", "ben", 'approve {"note": "ok", "amount": "12.50"}'),
    ]
    moves = Event.objects.order_by("pk").values_list("source", "to")
    assert list(moves) == [("submitted", ""), ("submitted", "approved")]
    # The next handler reads what was sent by whom.
    drain(Expense)
    assert (row(expense).state, row(expense).seen) == ("paid", "approve {'note': 'ok', 'amount': '12.50'} ben")


def test_asynchronous_handler_reads_it_as_well():
    packets = [Packet.objects.create() for _ in range(3)]
    for number, packet in enumerate(packets):
        packet.stator.send("pack", {"note": f"box {number}"})
    drain(Packet)
    assert [row(packet).note for packet in packets] == ["box 0", "box 1", "box 2"]


def test_asend_is_send_for_async_code():
    packet = Packet.objects.create()
    sent = async_to_sync(packet.stator.asend)("pack", {"note": "soon"})
    assert (sent.outcome, packet.state) == ("moved", "packed")


def test_refusals_say_in_one_sentence_what_is_wrong(approvers):
    anna, _, ina = approvers
    nobody = User.objects.create_user("nobody")
    expense = Expense.objects.create()
    assert refused(expense, "aprove") == (
        "ExpenseGraph has no event 'aprove'; its events: approve, reject, hurry, cancel, receipt"
    )
    assert refused(expense, "hurry") == (
        f"testapp.Expense {expense.pk} is in submitted, and does not take 'hurry' there; it waits for approve or reject"
    )
    assert "needs a user with the permission testapp.change_expense; pass by=USER" in refused(expense, "approve")
    assert refused(expense, "approve", by=nobody) == "nobody lacks the permission testapp.change_expense for 'approve'"
    assert refused(expense, "approve", {"note": "x"}, by=ina) == (
        f"ina may not send 'approve' to testapp.Expense {expense.pk}: is submitter"
    )
    assert refused(expense, "approve", {}, by=anna) == (
        "the payload of 'approve' is wrong: note: This field is required."
    )
    assert "the payload of 'approve' is list; pass a dictionary" in refused(expense, "approve", [1], by=anna)
    assert "cannot be stored as JSON" in refused(expense, "reject", {"at": object()})
    assert "NUL character" in refused(expense, "reject", "a\0b")
    assert "the payload of 'receipt' is wrong: pay by cash or card" in refused(expense, "receipt", "gold")


def test_refusal_says_who_has_decided():
    expense = Expense.objects.create()
    expense.stator.send("reject", by="anna")
    assert refused(expense, "reject", by="ben") == (
        f"testapp.Expense {expense.pk} is in rejected since 'reject' from anna, and does not take 'reject' there; "
        "it waits for no event"
    )


def test_payload_has_a_limit(settings):
    settings.STATOR = {"PAYLOAD_LIMIT": 20}
    expense = Expense.objects.create()
    assert "the payload has 32 bytes as JSON; the most is 20" in refused(expense, "reject", "x" * 30)


def test_object_that_is_gone_is_refused():
    expense = Expense.objects.create()
    raw(Expense).filter(pk=expense.pk).delete()
    with pytest.raises(EventRefused, match="does not exist"):
        expense.stator.send("reject")


def test_repeated_key_changes_nothing_and_says_so():
    expense = Expense.objects.create()
    first = expense.stator.send("reject", "no", key="mail-17")
    again = expense.stator.send("reject", "never", key="mail-17")
    assert (first.outcome, again.outcome, again.event.pk) == ("moved", "repeated", first.event.pk)
    assert History.objects.count() == 1
    assert "has 'reject' with the key 'mail-17' already" in refused(expense, "receipt", "cash", key="mail-17")


def test_event_without_a_target_makes_the_object_ready_and_is_seen_by_its_handler():
    expense = put(Expense, state="approved", waits=True)
    drain(Expense)
    assert row(expense).state == "approved"
    assert expense.stator.send("hurry", by="ops").outcome == "ready"
    drain(Expense)
    assert (row(expense).state, row(expense).seen) == ("paid", "hurry None ops")


def test_event_ends_a_claim_by_the_fence():
    expense = put(Expense, state="approved")
    [claim] = claim_all(operations_of(Expense))
    raw(Expense).get(pk=expense.pk).stator.send("cancel", by="anna")
    assert not claim.still_mine()
    assert row(expense).state == "rejected"


def test_event_that_comes_before_its_state_is_delivered_when_a_worker_enters_it():
    expense = put(Expense, state="approved")
    assert expense.stator.send("receipt", "cash", by="shop").outcome == "kept"
    assert "kept for another" in expense.explain()[-1].sentence
    drain(Expense)
    assert row(expense).state == "closed"
    moves = History.objects.exclude(to="").order_by("pk").values_list("to", "actor")
    assert list(moves) == [("paid", ""), ("closed", "shop")]


@pytest.mark.parametrize("by_hand", [True, False])
def test_kept_event_is_delivered_on_entry_by_hand_or_not_at_all_after_its_time(by_hand):
    expense = Expense.objects.create()
    expense.stator.send("receipt", "card")
    if not by_hand:
        Event.objects.update(until=ago(1))
    expense.transition_perform("paid")
    assert row(expense).state == ("closed" if by_hand else "paid")


def test_key_of_an_event_that_was_kept_in_vain_may_come_again():
    expense = Expense.objects.create()
    assert expense.stator.send("receipt", "card", key="r1").outcome == "kept"
    assert expense.stator.send("receipt", "card", key="r1").outcome == "repeated"
    Event.objects.update(until=ago(1))
    assert expense.stator.send("receipt", "card", key="r1").outcome == "kept"
    expense.transition_perform("paid")
    assert row(expense).state == "closed"


def test_send_is_undone_with_the_transaction_of_its_caller():
    expense = Expense.objects.create()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        expense.stator.send("reject")
        assert expense.state == "rejected"
        1 / 0  # noqa: B018
    assert row(expense).state == "submitted"
    assert not Event.objects.exists()


def test_explain_says_which_events_are_awaited_from_whom_and_what_has_come(approvers):
    anna, *_ = approvers
    expense = Expense.objects.create()
    approve(expense, anna)
    reason, *_ = expense.explain()
    assert reason.code == "awaits_event"
    assert reason.sentence.startswith(
        "Waits for the event approve (from users with testapp.change_expense: anna, ben, ina; 1 of 2 senders so far: "
        "anna) or reject; it times out to escalated in"
    )
    assert Expense.stator.explain_counts() == {"awaits_event": 1}


def test_object_that_workers_attempt_says_at_last_which_events_it_takes():
    expense = put(Expense, state="approved")
    assert [reason.code for reason in expense.explain()][-1] == "takes_event"


@pytest.mark.django_db(transaction=True)
def test_first_of_two_senders_wins():
    expense = Expense.objects.create()

    def reject():
        try:
            return raw(Expense).get(pk=expense.pk).stator.send("reject").outcome
        except EventRefused:
            return "refused"

    assert sorted(at_once(reject, reject)) == ["moved", "refused"]
    assert History.objects.filter(to="rejected").count() == 1


@pytest.mark.django_db(transaction=True)
def test_either_the_worker_or_the_sender_wins():
    operations = operations_of(Expense)
    for _ in range(5):
        expense = put(Expense, state="approved")
        [claim] = claim_all(operations)

        def cancel(expense=expense):
            try:
                return raw(Expense).get(pk=expense.pk).stator.send("cancel").outcome == "moved"
            except EventRefused:
                return False

        def record(claim=claim):
            return bool(operations.record([(claim, Moved(ExpenseGraph.paid))]).moves)

        canceled, recorded = at_once(cancel, record)
        assert canceled is not recorded
        assert row(expense).state == ("rejected" if canceled else "paid")
        assert History.objects.exclude(to="").filter(object_pk=str(expense.pk)).count() == 1


def test_instance_without_a_claim_is_false_and_says_so():
    expense = Expense.objects.create()
    assert not expense.stator
    with pytest.raises(AttributeError, match=r"is not claimed, so instance\.stator has no 'attempt' here"):
        expense.stator.attempt  # noqa: B018
