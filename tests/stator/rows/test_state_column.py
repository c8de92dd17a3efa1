"""A column of the state with another name, which stores numbers: the names are everywhere else."""

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, models

from stator.claims import find
from stator.db import chores
from stator.exceptions import LeaseLost
from stator.models import Before, Event, History, Report, Stats
from stator.rows.actions import Action
from stator.rows.state_column import StateField, state_field, state_name, state_of
from stator.signals import transitioned
from stator.testing import assert_moves, drain
from stator.undo import undo
from tests.stator.making import ago, automatic, operations_of, put, raw, row
from tests.testapp.mails import Mail, MailGraph

pytestmark = pytest.mark.django_db


@pytest.fixture
def mails():
    return operations_of(Mail)


def stored(mail):
    """What the table has, read without the field."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT status FROM testapp_mail WHERE id = %s", [mail.pk])
        return cursor.fetchone()[0]


def test_new_row_begins_in_the_initial_state():
    mail = Mail.objects.create()
    assert (mail.status, stored(mail), state_name(mail), state_of(mail)) == (0, 0, "queued", MailGraph.queued)
    assert [Mail(status=each).status for each in (MailGraph.sent, "sent", 1)] == [MailGraph.sent, "sent", 1]


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
    with pytest.raises(ValueError, match="'lost' is not a state"):
        mail.transition_perform("lost")
    with pytest.raises(ValidationError):
        Mail(status=7).full_clean()
    with pytest.raises(ValueError, match="'7' is not a state of MailGraph"):
        Mail.objects.create(status=7)


def test_migrations_see_a_field_of_integers():
    _, path, _, kwargs = state_field(Mail).deconstruct()
    assert path == "django.db.models.IntegerField"
    assert kwargs["default"] == 0
    assert sorted(value for value, _ in kwargs["choices"]) == [0, 1, 2, 3, 10]
    assert "max_length" not in kwargs
    assert isinstance(state_field(Mail), StateField)
    assert isinstance(state_field(Mail), models.IntegerField)


def test_worker_moves_rows_and_writes_names_into_the_history():
    moved = []
    transitioned.connect(receiver := lambda moves, **rest: moved.extend(moves), sender=Mail, weak=False)
    mail = Mail.objects.create()
    try:
        assert_moves(mail, "sending", "sent")
    finally:
        transitioned.disconnect(receiver, sender=Mail)
    assert (mail.status, stored(mail)) == (1, 1)
    assert list(History.objects.order_by("pk").values_list("source", "to")) == [
        ("queued", "sending"), ("sending", "sent")
    ]  # fmt: skip
    assert {(move.source, move.to) for move in moved} == {("queued", "sending"), ("sending", "sent")}
    assert set(Stats.objects.values_list("source", "to")) == {("queued", "sending"), ("sending", "sent")}


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
    assert (claim.state, mails.holds(claim), find(Mail, mail.pk, claim.token).state) == (
        MailGraph.queued, True, MailGraph.queued
    )  # fmt: skip
    assert mails.renew([claim]) == set()
    raw(Mail).update(status=7)
    assert not mails.holds(claim)
    with pytest.raises(LeaseLost, match="is in state '7'"):
        find(Mail, mail.pk, claim.token)


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


def test_move_by_hand_is_undone():
    mail = Mail.objects.create()
    action = Action.of(Mail, "move", "ada", "wrong", moves=True)
    assert Mail.stator.filter(pk=mail.pk).move("sent", action=action) == 1
    assert (stored(mail), Before.objects.get().state) == (1, "queued")
    assert undo(action.pk, "default", actor="ada", reason="back").count == 1
    assert stored(mail) == 0
    assert list(History.objects.order_by("pk").values_list("source", "to")) == [("queued", "sent"), ("sent", "queued")]


def test_counts_and_explanations_have_names():
    Mail.objects.create()
    unknown = Mail.objects.create()
    raw(Mail).filter(pk=unknown.pk).update(status=7)
    assert Mail.stator.counts() == {"queued": 1, "sending": 0, "sent": 0, "refused": 0, "recalled": 0, "7": 1}
    assert list(Mail.stator.unknown()) == list(Mail.stator.in_state("7")) == [unknown]
    assert next(reason.code for reason in unknown.explain()) == "unknown_state"
    assert Mail.stator.explain_counts()["unknown_state"] == 1
