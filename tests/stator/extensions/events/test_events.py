"""Events: an object takes those that its state waits for, once, from those who may send them, and nothing else."""

from copy import copy

import pytest
from django import forms
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.validators import validate_slug
from django.db.models import QuerySet

from stator import Sender, claims
from stator.db import own_tables
from stator.exceptions import EventRefused, GraphError
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Released, Waiting
from stator.models import Event, History
from stator.rows.followers import followers_of
from stator.survey.depths import depths
from stator.testing import drain
from stator.texts import json_text
from tests.stator.making import ago, at_once, claim_all, operations_of, put, raw, row
from tests.testapp.approvals import Expense, ExpenseGraph, Packet, PacketGraph
from tests.testapp.lives import Contract

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


@pytest.mark.parametrize("most", [1000, 2])
def test_handlers_read_all_events_of_the_visit(monkeypatch, most):
    monkeypatch.setattr("stator.extensions.events.claims.MAX_EVENTS", most)
    told, packets = {}, [Packet.objects.create() for _ in range(2)]

    def tell(cls, it):
        told[type(it), it.pk] = [event.payload for event in it.stator.events], it.stator.event.payload

    async def tell_on_the_loop(cls, it):
        tell(cls, it)

    monkeypatch.setattr(PacketGraph, "handle_packed", classmethod(tell_on_the_loop))
    monkeypatch.setattr(ExpenseGraph, "handle_approved", classmethod(tell))
    expense = put(Expense, state="approved")
    for number in range(3):
        expense.stator.send("hurry", number)
    for packet in packets:
        packet.stator.send("pack", {"note": "box"})
        packet.stator.send("label", packet.pk)
    drain(Expense, Packet)
    assert told == {(Packet, one.pk): ([{"note": "box"}, one.pk], one.pk) for one in packets} | {
        (Expense, expense.pk): ([0, 1, 2], 2)
    }


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
    # A permission is of users, and of tokens that list it.
    for by in (None, "bank", Sender("bank")):
        told = refused(expense, "approve", {"note": "x"}, by=by)
        assert "needs a user with the permission testapp.change_expense; pass by=USER" in told
    assert approve(Expense.objects.create(), Sender("bank", permitted=True)).missing == 1
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
    for given in ({"by": "a\0"}, {"by": "a\ud800"}, {"key": "a\0"}):
        assert "has " in refused(expense, "reject", **given)
    expense.stator.send("reject", by="anna", reason="a\0")
    assert refused(expense, "reject", by="ben") == (
        f"testapp.Expense {expense.pk} is in rejected since 'reject' from anna, and does not take 'reject' there; "
        "it waits for no event"
    )
    with pytest.raises(EventRefused, match=r"is not saved yet; call save\(\) before you send it an event"):
        Expense().stator.send("reject")
    raw(Expense).filter(pk=expense.pk).delete()
    with pytest.raises(EventRefused, match="does not exist"):
        expense.stator.send("reject")


@pytest.mark.parametrize(
    ("by", "name"),
    [("Ops", "Ops"), (None, ""), (Sender("bank", permitted=True), "bank"), (7, "7"), (AnonymousUser(), "")],
)
def test_sender_is_a_user_or_has_what_users_have(monkeypatch, by, name):
    asked = []

    def is_submitter(expense, sender):
        """The submitter of Expenses may not reject."""
        asked.append((sender.username, sender.get_username(), sender.is_authenticated, sender.has_perm("any.thing")))
        return expense.submitter == sender.username

    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "unless", is_submitter)
    expense = Expense.objects.create(submitter="Ops")
    if name == "Ops":
        assert refused(expense, "reject", by=by) == (
            f"Ops may not send 'reject' to testapp.Expense {expense.pk}: The submitter of Expenses may not reject"
        )
    else:
        assert expense.stator.send("reject", by=by).event.sender == name
    assert asked == [(name, name, False, name == "bank")]


def nested(levels):
    return [nested(levels - 1)] if levels else []


@pytest.mark.parametrize(
    ("payload", "wrong"),
    [
        ("a\ud800", "has half of a surrogate pair"),
        ({"a\udfff": 1}, "has half of a surrogate pair"),
        (nested(31), "is nested deeper than 30 levels"),
        ([float("nan")], "cannot be stored as JSON"),
    ],
)
def test_payload_is_checked_like_the_data_of_a_task_and_has_a_limit(payload, wrong, settings):
    expense = Expense.objects.create()
    assert f"the payload {wrong}" in refused(expense, "reject", payload)
    with pytest.raises(ValueError, match=f"the payload {wrong}"):
        json_text("the payload", payload, 1000, 30)
    settings.STATOR = {"PAYLOAD_LIMIT": 20}
    assert "the payload has 32 bytes as JSON; the most is 20" in refused(expense, "reject", "x" * 30)
    settings.STATOR = {}
    assert expense.stator.send("reject", nested(30)).outcome == "moved"


class ChoiceForm(forms.Form):
    approver = forms.ModelChoiceField(User.objects.all())
    named = forms.ModelChoiceField(User.objects.all(), to_field_name="username", required=False)
    readers = forms.ModelMultipleChoiceField(User.objects.all(), required=False)


def test_payload_has_the_keys_of_the_objects_that_its_form_chooses(approvers, monkeypatch):
    anna, ben, ina = approvers
    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "form", ChoiceForm)
    first, second = Expense.objects.create(), Expense.objects.create()
    chosen = {"approver": anna.pk, "named": "ben", "readers": [ben.pk, ina.pk]}
    assert first.stator.send("reject", chosen).event.payload == chosen
    assert second.stator.send("reject", {"approver": anna, "readers": []}).event.payload == {
        "approver": anna.pk, "named": None, "readers": [],
    }  # fmt: skip
    assert Event.objects.filter(payload__approver=anna.pk).count() == 2


def test_same_choice_is_the_same_payload_in_whatever_order_the_database_has_the_objects(approvers, monkeypatch):
    anna, ben, ina = approvers
    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "form", ChoiceForm)
    expense, chosen = Expense.objects.create(), {"approver": anna.pk, "readers": [ina.pk, anna.pk, ben.pk]}
    assert expense.stator.send("reject", chosen, key="mail-17").event.payload["readers"] == [anna.pk, ben.pk, ina.pk]
    # PostgreSQL writes a changed row behind the others.
    for user in (ben, anna):
        User.objects.filter(pk=user.pk).update(first_name="of late")
    assert expense.stator.send("reject", chosen, key="mail-17").note == ""


def test_repeated_key_changes_nothing_and_says_so():
    expense = Expense.objects.create()
    first = expense.stator.send("reject", "no", key="mail-17")
    again = expense.stator.send("reject", "no", key="mail-17")
    assert (first.outcome, again.outcome, again.event.pk) == ("moved", "repeated", first.event.pk)
    assert History.objects.count() == 1
    assert "has 'reject' with the key 'mail-17' already" in refused(expense, "receipt", "cash", key="mail-17")


def test_key_belongs_to_its_sender():
    expense = put(Expense, state="approved")
    sent = [expense.stator.send("hurry", by, by=by, key="7") for by in ("anna", "ben", "", "anna")]
    assert [each.outcome for each in sent] == ["ready", "ready", "ready", "repeated"]
    assert Event.objects.count() == 3


def test_repeated_key_with_another_payload_is_never_silent(approvers, caplog):
    anna, *_ = approvers
    expense = Expense.objects.create()
    caplog.set_level("WARNING", "stator.events")
    first = expense.stator.send("approve", {"note": "ok", "amount": "2.50"}, by=anna, key="1")
    same = expense.stator.send("approve", {"amount": "2.50", "note": " ok"}, by=anna, key="1")
    assert (first.note, same.outcome, same.note, caplog.messages) == ("", "repeated", "", [])
    other = expense.stator.send("approve", {"note": "ok", "amount": "2000"}, by=anna, key="1")
    assert (other.outcome, other.event.payload["amount"]) == ("repeated", "2.50")
    assert other.note == "the key '1' came with another payload before; that one counts"
    assert caplog.messages == ["stator.event_repeated"]
    told = History.objects.order_by("-pk").first().reason
    assert told == f'approve {{"note": "ok", "amount": "2000"}} (repeated: {other.note})'
    assert "another payload" in expense.stator.send("approve", {"note": ""}, by=anna, key="1").note


def test_event_without_a_target_makes_the_object_ready_and_is_seen_by_its_handler():
    expense = put(Expense, state="approved", waits=True)
    drain(Expense)
    assert row(expense).state == "approved"
    assert expense.stator.send("hurry", by="ops").outcome == "ready"
    drain(Expense)
    assert (row(expense).state, row(expense).seen) == ("paid", "hurry None ops")


@pytest.mark.parametrize("outcome", [Waiting(3600), Waiting(3600, describe(ValueError("away"))), Released(begun=True)])
def test_event_during_an_attempt_leaves_its_claim_and_brings_one_more_attempt(outcome):
    operations, expense = operations_of(Expense), put(Expense, state="approved")
    [claim] = claim_all(operations)
    for _ in range(3):
        assert raw(Expense).get(pk=expense.pk).stator.send("hurry", by="ops").outcome == "ready"
    assert claim.still_mine()
    assert claim_all(operations) == []
    assert operations.record([(claim, outcome)]).lost == []
    now = row(expense)
    assert (now.state_ready, now.state_next_attempt, now.state_claim) == (True, None, None)
    [again] = claim_all(operations)
    assert (again.attempt, again.event.name) == (2, "hurry")
    operations.record([(again, Waiting(3600))])
    assert not row(expense).state_ready
    assert claim_all(operations) == []


def test_event_during_an_attempt_that_moves_the_object_is_over_with_its_visit():
    operations, expense = operations_of(Expense), put(Expense, state="approved")
    [claim] = claim_all(operations)
    raw(Expense).get(pk=expense.pk).stator.send("hurry")
    assert operations.record([(claim, Moved(ExpenseGraph.paid))]).moves
    assert (row(expense).state, row(expense).state_ready) == ("paid", False)


def test_event_before_a_claim_is_of_that_claim_alone():
    operations = operations_of(Expense)
    put(Expense, state="approved", state_ready=False, state_next_attempt=ago(-3600)).stator.send("hurry")
    expense = raw(Expense).get()
    [claim] = claim_all(operations)
    operations.record([(claim, Waiting(3600))])
    assert not row(expense).state_ready


def test_program_that_holds_an_object_gets_one_more_claim_for_an_event():
    expense = put(Expense, state="approved")
    [claim] = claims.claim(Expense)
    raw(Expense).get(pk=expense.pk).stator.send("hurry")
    assert claims.end([(claim, Waiting(3600))]).lost == []
    [again] = claims.claim(Expense)
    assert (again.pk, again.event.name) == (expense.pk, "hurry")


def test_handler_that_sends_its_own_object_an_event_keeps_its_claim(monkeypatch):
    expense, seen = put(Expense, state="approved", waits=True), []

    def handle(cls, found):
        seen.append(found.stator.attempt)
        if len(seen) == 1:
            found.stator.send("hurry")
            assert found.stator.still_mine()
        found.save()

    monkeypatch.setattr(ExpenseGraph, "handle_approved", classmethod(handle))
    drain(Expense)
    assert (seen, row(expense).state_attempts) == ([1, 2], 2)


def test_held_object_that_will_be_attempted_again_is_counted_once():
    expense = put(Expense, state="approved")
    claim_all(operations_of(Expense))
    raw(Expense).get(pk=expense.pk).stator.send("hurry")
    found = depths(Expense.stator)
    assert (found.ready, len(found.held)) == (0, 1)


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


def test_kept_event_is_delivered_to_an_object_whose_key_a_form_would_refuse(monkeypatch):
    monkeypatch.setattr(Contract._meta.pk, "validators", [validate_slug])
    contract = put(Contract, name="no slug")
    assert contract.stator.send("pay").outcome == "kept"
    contract.transition_perform("approved")
    assert row(contract).state == "paid"


def test_event_is_of_its_object_however_the_sender_has_spelled_the_key():
    expense = Expense.objects.create()
    expense.pk = f"0{expense.pk}"
    expense.stator.send("approve", {"note": "ok"}, by=User(username="anna", is_superuser=True))
    assert Event.objects.get().object_pk == str(row(expense).pk)
    assert expense.stator.withdraw("approve", by="anna").outcome == "withdrawn"


def test_key_of_an_event_that_was_kept_in_vain_may_come_again():
    expense = Expense.objects.create()
    assert expense.stator.send("receipt", "card", key="r1").outcome == "kept"
    assert expense.stator.send("receipt", "card", key="r1").outcome == "repeated"
    Event.objects.update(until=ago(1))
    assert expense.stator.send("receipt", "card", key="r1").outcome == "kept"
    expense.transition_perform("paid")
    assert row(expense).state == "closed"


def test_event_is_kept_only_before_the_first_state_that_takes_it():
    operations, expense = operations_of(Expense), put(Expense, state="approved")
    assert expense.stator.send("receipt", "card", key="early").outcome == "kept"
    Event.objects.all().delete()
    expense.transition_perform("paid")
    expense.transition_perform("submitted")
    assert refused(expense, "receipt", "card").endswith(
        "is in submitted, and does not take 'receipt' there; it waits for approve or reject"
    )
    # Whatever the way out of the state.
    worked, timed = put(Expense, state="paid"), put(Expense, state="paid")
    moves = operations.move_rows(raw(Expense).filter(pk=timed.pk), "paid", ExpenseGraph.submitted, 5)
    assert moves.count == 1
    raw(Expense).filter(pk=worked.pk).update(state="approved")
    assert "submitted" in refused(row(timed), "receipt", "card")


def test_state_that_a_worker_has_left_is_remembered(monkeypatch, request):
    request.addfinalizer(followers_of.cache_clear)
    followers_of.cache_clear()
    event = copy(ExpenseGraph.paid.events["receipt"])
    event.state = ExpenseGraph.approved
    monkeypatch.setitem(ExpenseGraph.approved.events, "receipt", event)
    expenses = [put(Expense, state="approved"), put(Expense, state="approved")]
    operations = operations_of(Expense)
    operations.record([(claim, Moved(ExpenseGraph.paid)) for claim in claim_all(operations)])
    for expense in expenses:
        raw(Expense).filter(pk=expense.pk).update(state="submitted")
        assert "is in submitted" in refused(row(expense), "receipt", "card")


def test_second_of_two_kept_events_is_over_and_does_not_wait_for_the_next_visit():
    expense = put(Expense, state="approved")
    for sender in ("anna", "ben"):
        assert expense.stator.send("receipt", "card", by=sender).outcome == "kept"
    expense.transition_perform("paid")
    assert row(expense).state == "closed"
    told = History.objects.order_by("-pk").values_list("actor", "reason")[0]
    assert told == ("ben", 'receipt {"by": "card"} (over: closed does not take it)')
    assert list(Event.objects.values_list("sender", flat=True)) == ["anna"]
    expense.transition_perform("paid")
    assert row(expense).state == "paid"


def test_all_kept_events_of_a_batch_of_moves_are_given(monkeypatch):
    monkeypatch.setattr("stator.extensions.events.follower.BATCH", 3)
    expenses = [put(Expense, state="approved") for _ in range(5)]
    for expense in expenses:
        for sender in ("anna", "ben"):
            expense.stator.send("receipt", "card", by=sender)
    operations = operations_of(Expense)
    operations.move_rows(raw(Expense).filter(state="approved"), "approved", ExpenseGraph.paid, 100)
    assert {row(expense).state for expense in expenses} == {"closed"}
    assert Event.objects.filter(version=None).count() == 0


def past_retention():
    QuerySet(Event).update(at=ago(1000))
    raw(Expense).update(state_changed=ago(8000))


def test_retention_keeps_events_that_are_in_force(approvers):
    anna, ben, _ = approvers
    voted, ended, early = put(Expense), put(Expense), put(Expense)
    read = put(Expense, state="approved")
    approve(voted, anna)
    approve(ended, anna)
    ended.stator.send("reject")
    ended.transition_perform("escalated")
    read.stator.send("hurry", 7)
    early.stator.send("receipt", "card")
    Event.objects.filter(object_pk=str(early.pk)).update(until=ago(-1000))
    late = put(Expense)
    late.stator.send("receipt", "card")
    Event.objects.filter(object_pk=str(late.pk)).update(until=ago(500))
    left = put(Expense, state="paid")
    left.transition_perform("submitted")
    past_retention()
    own_tables.prune_all("default", 100, errors=500, history=500, stats=500)
    assert set(Event.objects.values_list("object_pk", "name")) == {
        (str(voted.pk), "approve"), (str(read.pk), "hurry"), (str(early.pk), "receipt"),
    }  # fmt: skip
    assert approve(voted, ben).outcome == "moved"
    assert "is in submitted" in refused(row(left), "receipt", "card")
    raw(Expense).filter(pk=left.pk)._raw_delete("default")
    own_tables.prune_all("default", 100, errors=500, history=500, stats=500)
    assert not QuerySet(Event).filter(object_pk=str(left.pk)).exists()


def test_events_in_force_do_not_keep_later_ones_from_being_pruned(approvers):
    anna, *_ = approvers
    for _ in range(5):
        approve(Expense.objects.create(), anna)
    over = put(Expense, state="approved")
    for _ in range(3):
        over.stator.send("hurry")
    raw(Expense).filter(pk=over.pk).update(state_version=9)
    past_retention()
    assert sum(own_tables.prune("default", 2, errors=500, history=500, stats=500) for _ in range(5)) >= 3
    assert Event.objects.count() == 5


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


@pytest.mark.django_db(transaction=True)
def test_event_beside_the_record_of_an_attempt_is_never_lost():
    operations = operations_of(Expense)
    for _ in range(5):
        expense = put(Expense, state="approved")
        [claim] = claim_all(operations)
        ended = [(claim, Waiting(3600))]

        def hurry(expense=expense):
            return raw(Expense).get(pk=expense.pk).stator.send("hurry").outcome

        def record(ended=ended):
            return operations.record(ended)

        outcome, written = at_once(hurry, record)
        if written.deferred:
            written = operations.record(ended)
        assert (outcome, written.lost, written.deferred) == ("ready", [], [])
        now = row(expense)
        assert (now.state_ready, now.state_next_attempt, now.state_claim) == (True, None, None)
        raw(Expense).filter(pk=expense.pk).update(state_ready=False)


def test_instance_without_a_claim_is_false_and_says_so():
    expense = Expense.objects.create()
    assert not expense.stator
    with pytest.raises(AttributeError, match=r"is not claimed, so instance\.stator has no 'attempt' here"):
        expense.stator.attempt  # noqa: B018


def test_count_may_be_a_function_of_the_object(approvers, monkeypatch):
    anna, ben, _ = approvers
    monkeypatch.setattr(ExpenseGraph.submitted.events["approve"], "count", lambda expense: 1 if expense.waits else 2)
    small, large = Expense.objects.create(waits=True), Expense.objects.create()
    assert "takes different senders; pass by=" in refused(small, "approve", {"note": "ok"}, by=Sender(permitted=True))
    assert approve(small, anna).outcome == "moved"
    assert (approve(large, anna).missing, large.stator.available(anna)) == (1, ["reject"])
    assert "1 of 2 senders so far: anna" in large.explain()[0].sentence
    assert approve(large, ben).outcome == "moved"


def test_fault_of_the_count_is_an_error_of_the_sender_and_none_of_explain(approvers, monkeypatch):
    monkeypatch.setattr(ExpenseGraph.submitted.events["approve"], "count", lambda expense: 0)
    expense = Expense.objects.create()
    with pytest.raises(GraphError, match=r"count\(\) returned 0; it must return a whole number of at least 1"):
        approve(expense, approvers[0])
    assert not Event.objects.exists()
    assert "0 of several senders" in expense.explain()[0].sentence


def test_sender_withdraws_an_event_while_others_are_missing(approvers):
    anna, ben, ina = approvers
    expense = Expense.objects.create(submitter="eva")
    approve(expense, anna)
    withdrawn = expense.stator.withdraw("approve", by=anna, reason="too early")
    assert (withdrawn.outcome, withdrawn.missing, Event.objects.count()) == ("withdrawn", 2, 0)
    assert History.objects.latest("pk").reason == 'approve {"note": "ok", "amount": null}: too early (withdrawn)'
    assert approve(expense, ben).missing == 1
    for by in (anna, ina, ""):
        with pytest.raises(EventRefused, match="that still waits for others"):
            expense.stator.withdraw("approve", by=by)
    assert approve(expense, anna).outcome == "moved"
    with pytest.raises(EventRefused, match=r"has no 'approve' from anna that still waits for others"):
        expense.stator.withdraw("approve", by=anna)
    assert row(expense).state == "approved"


def test_event_that_has_woken_its_object_is_not_withdrawn(monkeypatch):
    monkeypatch.setattr(ExpenseGraph.approved.events["hurry"], "count", 2)
    expense = put(Expense, state="approved")
    for name in ("anna", "ben"):
        expense.stator.send("hurry", by=name)
    with pytest.raises(EventRefused, match="has got 'hurry' from all its senders; it cannot be withdrawn"):
        expense.stator.withdraw("hurry", by="anna")
    with pytest.raises(EventRefused, match="does not exist"):
        Expense(pk=999_999).stator.withdraw("hurry", by="anna")
