"""Atomic states: what their handlers do commits with the move or not at all."""

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.exceptions import GraphError
from stator.graph import State, StateGraph
from stator.graph.outcomes import Released
from stator.models import Report, Stats
from stator.runner import StatorRunner
from stator.signals import transitioned
from stator.worker.executor import PLAIN, Attempted, attempt_sync, call_atomic
from tests.stator.running import hearing, work
from tests.testapp.power import Transfer, Written

pytestmark = pytest.mark.django_db(transaction=True)


def test_effects_of_an_atomic_state_commit_with_its_move():
    transfer = Transfer.objects.create()
    summary = work(Transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.touched, transfer.state_claim) == ("done", 1, None)
    assert Written.objects.filter(about=transfer.pk).count() == 1
    assert summary.handled == {"testapp.transfer": 1}
    assert summary.moved == {("testapp.transfer", "done"): 1}
    assert sum(Stats.objects.values_list("handled", flat=True)) == 1


@pytest.mark.parametrize(("deed", "error"), [("raise", "ValueError"), ("stray", "stator.exceptions.InvalidTransition")])
def test_effects_of_an_atomic_state_are_undone_by_an_error(deed, error):
    transfer = Transfer.objects.create(deed=deed)
    work(Transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.state_failures, transfer.touched, transfer.state_claim) == ("new", 1, 0, None)
    assert not Written.objects.exists()
    assert Report.objects.get().error == error


def test_effects_of_an_atomic_state_are_undone_where_its_move_cannot_be_written(monkeypatch):
    Transfer.objects.create()
    made = operations_for(Transfer, Settings(), new_worker_id())
    claim = claimed(made)

    def refuse(ended, last):
        assert Written.objects.count() == 1
        raise IntegrityError("no such move today")

    monkeypatch.setattr(made, "record", refuse)
    [(_, outcome)] = attempt_sync([claim]).ended
    assert outcome.failure.message == "no such move today"
    transfer = Transfer.objects.get()
    assert (transfer.state, transfer.touched, transfer.state_claim) == ("new", 0, claim.token)
    assert not Written.objects.exists()


def test_error_that_broke_the_transaction_and_was_caught_fails_the_attempt():
    transfer = Transfer.objects.create(deed="swallow")
    summary = work(Transfer)
    transfer.refresh_from_db()
    assert summary.moved == {}
    assert (transfer.state, transfer.state_failures, transfer.touched, transfer.state_claim) == ("new", 1, 0, None)
    assert Report.objects.get().error == "django.db.transaction.TransactionManagementError"


def test_effects_of_an_atomic_state_that_waits_are_kept():
    transfer = Transfer.objects.create(deed="wait")
    work(Transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.touched, transfer.state_ready) == ("new", 1, False)
    assert Written.objects.count() == 1


@pytest.mark.parametrize("warm", [False, True], ids=["first", "prepared"])
def test_effects_of_an_atomic_state_are_undone_where_the_commit_is_refused(warm):
    made = operations_for(Transfer, Settings(), new_worker_id())
    if warm:
        Transfer.objects.bulk_create(Transfer() for _ in range(10))
        for _ in range(10):
            assert attempted(claimed(made)) == ("done", 0, 1)
    Transfer.objects.create(deed="dangle")
    assert attempted(claimed(made)) == ("new", 1, 0)
    assert Report.objects.get().error == "django.db.utils.IntegrityError"
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


def test_atomic_handler_may_lock_the_rows_that_it_goes_through():
    Written.objects.bulk_create(Written(about=0) for _ in range(4))
    transfer = Transfer.objects.create(deed="browse")
    work(Transfer)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.touched) == ("done", 5)


def test_atomic_handler_that_fails_for_one_object_is_called_once():
    Transfer.objects.create(deed="raise")
    assert calls_for([claimed(operations_for(Transfer, Settings(), new_worker_id()))], call_atomic) == [1]


def test_atomic_batch_that_was_not_begun_is_not_attempted_one_by_one():
    made = operations_for(Transfer, Settings(), new_worker_id())
    Transfer.objects.bulk_create(Transfer() for _ in range(2))
    claims = made.claim(list(made.graph.automatic_states), 2)
    assert calls_for(claims, lambda claims: Attempted([(claim, Released()) for claim in claims])) == [2]


def calls_for(claims, call):
    """The number of objects in each call of an attempt."""
    called = []

    def counted(claims):
        called.append(len(claims))
        return call(claims)

    attempt_sync(claims, PLAIN._replace(atomic=counted))
    return called


def claimed(operations):
    [claim] = operations.claim(list(operations.graph.automatic_states), 1)
    return claim


def attempted(claim):
    """The state of a transfer, its errors and its effects after an attempt whose outcome was recorded, or was to be."""
    operations, made = claim.operations, attempt_sync([claim])
    operations.record(made.ended)
    transfer = Transfer.objects.get(pk=claim.pk)
    return transfer.state, transfer.state_failures, Written.objects.filter(about=claim.pk).count()


def test_atomic_attempt_that_cannot_begin_did_not_take_place(monkeypatch):
    made, asked = operations_for(Transfer, Settings(), new_worker_id()), []
    transfer = Transfer.objects.create()

    def away(claims):
        asked.append(claims)
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(made, "lock_claimed", away)
    assert attempted(claimed(made)) == ("new", 0, 0)
    assert len(asked) == 2
    transfer.refresh_from_db()
    assert (transfer.state_ready, transfer.state_attempts, transfer.state_claim) == (False, 0, None)
    # Not at once: nothing says that the database is back.
    assert 0 < (transfer.state_next_attempt - transfer.state_attempted).total_seconds() < 60


def test_error_in_what_an_atomic_handler_has_called_after_the_commit_undoes_nothing_and_is_logged(caplog):
    Transfer.objects.create(deed="hook")
    with hearing(transitioned) as heard:
        summary = work(Transfer)
    assert Transfer.objects.get().state == "done"
    assert summary.moved == {("testapp.transfer", "done"): 1}
    assert (summary.failed, summary.lost) == (0, 0)
    assert [move.to for _, values in heard for move in values["moves"]] == ["done"]
    assert not Report.objects.exists()
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (record.message, record.model, record.state) == ("stator.on_commit_failed", "testapp.transfer", "new")
    assert "the mail server is away" in str(record.exc_info[1])


def test_atomic_state_does_not_run_once_its_claim_has_ended():
    transfer = Transfer.objects.create()
    made = operations_for(Transfer, Settings(), new_worker_id())
    (claim,) = made.claim(list(Transfer.state_graph.automatic_states), 1)
    Transfer.stator.unlock()
    attempted = attempt_sync([claim])
    assert (attempted.ended, attempted.recorded, attempted.written.lost) == ([], [], [claim])
    assert not Written.objects.exists()
    transfer.refresh_from_db()
    assert (transfer.state, transfer.touched) == ("new", 0)


def test_atomic_state_runs_in_the_single_cycle_of_a_test_within_its_transaction():
    with transaction.atomic():
        Transfer.objects.create()
        assert StatorRunner([Transfer]).run_single_cycle() == 1
        assert Transfer.objects.get().state == "done"
        transaction.set_rollback(True)
    assert not Written.objects.exists()


def test_atomic_state_with_an_asynchronous_handler_is_refused():
    with pytest.raises(GraphError, match=r"Wrong\.new: atomic needs a synchronous handler"):

        class Wrong(StateGraph):
            new = State(try_interval=1, atomic=True)
            done = State()
            new.transitions_to(done)

            @classmethod
            async def handle_new(cls, instance):
                return cls.done
