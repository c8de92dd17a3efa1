"""A column of the state with another name, which stores numbers: the names are everywhere else."""

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.forms import modelform_factory

from stator.claims import find
from stator.db import chores
from stator.exceptions import LeaseLost
from stator.graph import State, StateGraph
from stator.models import Event, History, Report, Stats
from stator.rows.actions import Action
from stator.rows.state_column import StateField, state_field, state_name, state_of
from stator.signals import transitioned
from stator.survey.depths import depths
from stator.testing import assert_moves, attempt, drain
from stator.undo import undo
from tests.stator.making import ago, automatic, operations_of, put, raw, row
from tests.stator.running import hearing
from tests.testapp.basic import StepGraph
from tests.testapp.mails import Mail, MailGraph, Postcard, Sack, Slip

pytestmark = pytest.mark.django_db


@pytest.fixture
def mails():
    return operations_of(Mail)


def stored(mail):
    with connection.cursor() as cursor:
        cursor.execute("SELECT status FROM testapp_mail WHERE id = %s", [mail.pk])
        return cursor.fetchone()[0]


def test_new_row_begins_in_the_initial_state():
    mail = Mail.objects.create()
    assert (mail.status, stored(mail), state_name(mail), state_of(mail)) == (0, 0, "queued", MailGraph.queued)
    assert [Mail(status=each).status for each in (MailGraph.sent, "sent", 1)] == [1, 1, 1]


@pytest.mark.parametrize("given", [MailGraph.sent, "sent", 1], ids=["state", "name", "value"])
def test_states_names_and_values_are_taken_alike(given):
    mail, other = Mail.objects.create(status=given), Mail.objects.create()
    assert (mail.status, stored(mail)) == (1, 1)
    assert list(Mail.objects.filter(status=given)) == list(Mail.stator.in_state(given)) == [mail]
    assert list(Mail.objects.filter(status__in=[given])) == [mail]
    other.status = given
    other.save()
    assert (other.status, stored(other), row(other).state_version) == (1, 1, 1)


def test_unknown_values_are_refused():
    mail = Mail.objects.create()
    with pytest.raises(ValueError, match=r"'lost' is not a state of MailGraph; its states are queued \(0\), sending"):
        mail.transition_perform("lost")
    with pytest.raises(ValidationError):
        Mail(status=7).full_clean()
    with pytest.raises(ValueError, match="'7' is not a state of MailGraph"):
        Mail.objects.create(status=7)
    mail.status = 7
    with pytest.raises(ValueError, match="'7' is not a state of MailGraph"):
        mail.save()


@pytest.mark.parametrize("unknown", [7, "7", "typo", StepGraph.slow], ids=str)
def test_queries_for_unknown_states_are_refused(unknown):
    for search in (Mail.objects.filter, Mail.objects.exclude, Mail.objects.get, Mail.objects.update):
        with pytest.raises(ValueError, match="is not a state of MailGraph"):
            search(status=unknown)
    with pytest.raises(ValueError, match="is not a state of MailGraph"):
        Mail.objects.filter(status__in=["sent", unknown])


def test_comparisons_by_order_take_any_value():
    sent, refused = Mail.objects.create(status="sent"), Mail.objects.create(status="refused")
    assert list(Mail.objects.filter(status__gt=1, status__lt=9)) == [refused]
    assert list(Mail.objects.filter(status__lte="sent")) == [sent]
    assert list(Mail.objects.filter(status__in=Mail.objects.filter(pk=sent.pk).values("status"))) == [sent]


def test_state_equals_its_value_and_shows_its_label():
    mail = Mail(status="sent")
    assert (mail.status == 1, mail.status == MailGraph.sent, {1: "one"}[MailGraph.sent]) == (True, True, "one")
    assert (mail.get_status_display(), Mail(status=2).get_status_display()) == ("Sent", "Turned down")
    assert dict(state_field(Mail).choices)[10] == "Sending"
    assert mail.stator.state is MailGraph.sent
    assert not hasattr(mail, "state")


def test_column_must_have_room_for_the_values_and_takes_states_of_a_parent_graph_by_name():
    class Urgent(MailGraph):
        pass

    field = StateField(Urgent)
    assert (field.stored(MailGraph.sent), field.find(MailGraph.sent)) == (1, Urgent.sent)

    class Far(StateGraph):
        near = State(value=0, externally_progressed=True)
        far = State(value=70_000)
        near.transitions_to(far)

    assert isinstance(StateField(Far, base_field=models.BigIntegerField), models.BigIntegerField)
    with pytest.raises(TypeError, match="has no room for the value 70000; use a larger one"):
        StateField(Far, base_field=models.SmallIntegerField)
    with pytest.raises(TypeError, match=r"its values are integers, so give a class such as models\.IntegerField"):
        StateField(Far, base_field=models.CharField)
    with pytest.raises(TypeError, match=r"its values are texts, so give a class such as models\.CharField"):
        StateField(StepGraph, base_field=models.IntegerField)


class TestUnmanaged:
    def test_workers_leave_them_alone_until_they_get_a_state(self):
        card, other = Postcard.objects.create(status=None), Postcard.objects.create()
        raw(Postcard).filter(pk=card.pk).update(state_changed=ago(90_000))
        assert (card.status, card.stator.state, row(card).state_ready) == (None, None, False)
        assert drain(Postcard) == 2
        assert (row(card).status, row(card).state_version, row(other).status) == (None, 0, 1)
        card.status = MailGraph.queued
        card.save()
        assert (card.status, row(card).state_ready) == (0, True)
        assert drain(Postcard) == 2
        assert row(card).status == 1
        assert History.objects.filter(object_pk=card.pk).order_by("pk").first().source == "unmanaged"

    def test_they_are_settled_if_the_mixin_came_later(self):
        card = Postcard.objects.create(status=None)
        raw(Postcard).update(state_ready=True)
        assert chores.settle(operations_of(Postcard), 10) == 1
        assert row(card).state_ready is False

    def test_they_are_counted_by_themselves(self):
        ready, *_ = [Postcard.objects.create(**given) for given in ({"status": None}, {"status": None}, {})]
        raw(Postcard).filter(pk=ready.pk).update(state_ready=True)
        found = depths(Postcard.stator.all())
        assert {name: one.count for name, one in found.states.items() if one.count} == {"queued": 1, "unmanaged": 2}
        assert (found.ready, dict(found.unknown_states)) == (1, {})
        assert Postcard.stator.counts()["unmanaged"] == Postcard.stator.in_state("unmanaged").count() == 2
        assert (Postcard.stator.unknown().count(), Postcard.stator.in_state("unmanaged", "queued").count()) == (0, 3)
        assert Postcard.stator.explain_counts()["unmanaged"] == 2

    def test_forms_and_queries_take_null(self):
        card = Postcard(status=None)
        card.full_clean()
        card.save()
        assert list(Postcard.objects.filter(status=None)) == list(Postcard.objects.exclude(status="sent")) == [card]
        form = modelform_factory(Postcard, fields=["status"])({"status": "0"}, instance=card)
        form.save()
        assert (row(card).status, row(card).state_version) == (0, 1)

    def test_object_with_a_state_keeps_one(self):
        card = Postcard.objects.create()
        card.status = None
        with pytest.raises(ValidationError):
            card.full_clean()
        with pytest.raises(ValueError, match="an object with a state cannot become unmanaged; move it to a terminal"):
            card.save()

    def test_undo_leaves_it_managed(self):
        card = Postcard.objects.create(status=None)
        action = Action.of(Postcard, "move", "ada", "wrong", moves=True)
        assert Postcard.stator.filter(pk=card.pk).move(0, action=action) == 1
        left = undo(action.pk, "default", actor="ada", reason="back").left
        assert left == {str(card.pk): "was in unmanaged, which is no state of the graph"}
        assert row(card).status == 0

    def test_name_of_null_is_no_state(self):
        class Own(StateGraph):
            unmanaged = State(value=0)

        with pytest.raises(TypeError, match="'unmanaged' means null; name that state anew"):
            StateField(Own, null=True)


def test_migrations_see_a_field_of_integers():
    _, path, _, kwargs = state_field(Mail).deconstruct()
    assert path == "django.db.models.IntegerField"
    assert kwargs["default"] == 0
    assert sorted(value for value, _ in kwargs["choices"]) == [0, 1, 2, 3, 10]
    assert "max_length" not in kwargs
    assert isinstance(state_field(Mail), StateField)
    assert isinstance(state_field(Mail), models.IntegerField)


def test_worker_moves_rows_and_writes_names_into_the_history():
    mail, edges = Mail.objects.create(), [("queued", "sending"), ("sending", "sent")]
    with hearing(transitioned, Mail) as heard:
        assert_moves(mail, "sending", "sent")
    assert (mail.status, stored(mail)) == (1, 1)
    assert list(History.objects.order_by("pk").values_list("source", "to")) == edges
    assert [(move.source, move.to) for _, told in heard for move in told["moves"]] == edges
    assert set(Stats.objects.values_list("source", "to")) == set(edges)


def test_errors_are_reported_by_name_and_lead_to_the_state_of_failures():
    mail = Mail.objects.create(address="")
    drain(Mail)
    assert Report.objects.get().state == "queued"
    raw(Mail).update(state_ready=True, state_next_attempt=None)
    drain(Mail)
    mail.refresh_from_db()
    assert state_name(mail) in ("refused", "recalled")


def test_claim_is_fenced_by_what_is_stored(mails):
    mail = Mail.objects.create()
    [claim] = mails.claim(automatic(mails), 5)
    assert claim.state == find(Mail, mail.pk, claim.token).state == MailGraph.queued
    assert mails.holds(claim)
    assert mails.renew([claim]) == set()
    raw(Mail).update(status=7)
    assert not mails.holds(claim)
    with pytest.raises(LeaseLost, match="is in state '7'"):
        find(Mail, mail.pk, claim.token)


def test_waits_turns_and_steps_take_numbers():
    sack = Sack.objects.create()
    first = Slip.objects.create(sack=sack)
    second = Slip.objects.create(sack=sack, after=first, sender="bob")
    assert next(reason.code for reason in second.explain()) == "waits_for"
    attempt(first)
    assert row(first).status == 20
    drain(Slip)
    drain(Sack)
    assert [(row(slip).status, row(slip).grams) for slip in (first, second)] == [(20, 20), (20, 20)]
    assert (row(sack).status, state_name(row(sack))) == (1, "sealed")


def test_chores_move_and_delete_rows(mails):
    late, old = Mail.objects.create(), put(Mail, status=1, state_changed=ago(7200))
    raw(Mail).filter(pk=late.pk).update(state_ready=False, state_next_attempt=ago(-60), state_changed=ago(90000))
    empty = put(Mail, status=2, address="", state_ready=False)
    assert chores.time_out(mails, 10).count == 1
    assert chores.move_matching(mails, 10).count == 1
    assert chores.delete_due(mails, 10) == 1
    assert [stored(each) for each in (late, empty)] == [2, 3]
    assert not raw(Mail).filter(pk=old.pk).exists()


def test_event_moves_a_row_and_is_stored_with_the_name():
    mail = Mail.objects.create(status="refused")
    mail.stator.send("again", by=None)
    assert (row(mail).status, Event.objects.get().source, Event.objects.get().to) == (0, "refused", "queued")


def test_counts_and_explanations_have_names():
    Mail.objects.create()
    unknown = Mail.objects.create()
    raw(Mail).filter(pk=unknown.pk).update(status=7)
    assert Mail.stator.counts() == {"queued": 1, "sending": 0, "sent": 0, "refused": 0, "recalled": 0, "7": 1}
    assert list(Mail.stator.unknown()) == list(Mail.stator.in_state("7")) == [unknown]
    assert next(reason.code for reason in unknown.explain()) == "unknown_state"
    assert Mail.stator.explain_counts()["unknown_state"] == 1
