"""Atomic states, batch handlers, SQL transitions, limits over all workers, and history."""

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from stator.conf import Settings
from stator.db import chores, operations_for, refusals
from stator.db.base import Operations
from stator.db.claim import Crashes, new_worker_id
from stator.exceptions import GraphError
from stator.graph import State, StateGraph
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Waiting
from stator.models import History, Report, Stats
from stator.runner import StatorRunner
from stator.signals import transitioned
from stator.worker.executor import attempt_sync
from tests.stator.making import ago
from tests.testapp.power import (
    Crate,
    CrateGraph,
    Customer,
    Freight,
    Measure,
    MeasureGraph,
    Order,
    OrderGraph,
    Ride,
    Transfer,
    Visitor,
    Written,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["vendor", "portable"])
def operations(request):
    """Operations on a model, as the vendor of the database has them and as they are everywhere."""

    def make(model):
        if request.param == "vendor":
            return operations_for(model, Settings(), new_worker_id())
        return Operations(model, "default", Settings(), new_worker_id())

    return make


def work(*models, **options):
    return StatorRunner(list(models), until_idle=True, **options).run()


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

    def refuse(ended):
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


def claimed(operations):
    [claim] = operations.claim(list(operations.graph.automatic_states), 1)
    return claim


def attempted(claim):
    """The state of a transfer, its errors and its effects after an attempt whose outcome was recorded, or was to be."""
    operations, made = claim.operations, attempt_sync([claim])
    operations.record(made.ended)
    transfer = Transfer.objects.get(pk=claim.pk)
    return transfer.state, transfer.state_failures, Written.objects.filter(about=claim.pk).count()


@pytest.mark.postgresql
def test_connection_that_is_lost_before_an_atomic_handler_is_called_is_no_error_of_it():
    Transfer.objects.create()
    claim = claimed(operations_for(Transfer, Settings(), new_worker_id()))
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
    other.close()
    assert attempted(claim) == ("done", 0, 1)


@pytest.mark.postgresql
def test_session_that_somebody_cleared_before_an_atomic_handler_is_called_is_no_error_of_it():
    made = operations_for(Transfer, Settings(), new_worker_id())
    Transfer.objects.bulk_create(Transfer() for _ in range(10))
    for _ in range(9):
        assert attempted(claimed(made)) == ("done", 0, 1)
    last = claimed(made)
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    assert attempted(last) == ("done", 0, 1)


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
    heard = []

    def hear(sender, moves, **kwargs):
        heard.extend(move.to for move in moves)

    transitioned.connect(hear)
    try:
        summary = work(Transfer)
    finally:
        transitioned.disconnect(hear)
    assert Transfer.objects.get().state == "done"
    assert summary.moved == {("testapp.transfer", "done"): 1}
    assert (summary.failed, summary.lost, heard) == (0, 0, ["done"])
    assert not Report.objects.exists()
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.message == "stator.on_commit_failed"
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


def test_batch_handler_gets_up_to_so_many_objects_and_one_result_moves_all():
    CrateGraph.seen.clear()
    Crate.objects.bulk_create(Crate() for _ in range(10))
    summary = work(Crate)
    assert Crate.stator.counts() == {"sorting": 0, "sent": 10, "lost": 0}
    assert sorted(len(batch) for batch in CrateGraph.seen) == [2, 4, 4]
    assert summary.handled == {"testapp.crate": 10}


def test_batch_handler_answers_for_each_object():
    lost, sent, torn, waiting = (Crate.objects.create(deed=deed) for deed in ("lose", "send", "error", "wait"))
    work(Crate)
    for parcel in (lost, sent, torn, waiting):
        parcel.refresh_from_db()
    assert [parcel.state for parcel in (lost, sent, torn, waiting)] == ["lost", "sent", "sorting", "sorting"]
    assert [torn.state_failures, waiting.state_failures] == [1, 0]
    assert Report.objects.get().message == "torn"


def test_one_bad_object_does_not_spoil_its_batch():
    good = [Crate.objects.create() for _ in range(3)]
    bad = Crate.objects.create(deed="raise")
    work(Crate)
    bad.refresh_from_db()
    assert (bad.state, bad.state_failures) == ("sorting", 1)
    assert Crate.objects.filter(pk__in=[parcel.pk for parcel in good], state="sent").count() == 3


def test_batch_handler_may_delete_objects_and_answer_for_the_others():
    CrateGraph.seen.clear()
    Crate.objects.bulk_create(Crate(deed=deed) for deed in ("delete", "", ""))
    summary = work(Crate)
    assert Crate.stator.counts() == {"sorting": 0, "sent": 2, "lost": 0}
    assert len(CrateGraph.seen) == 1
    assert (summary.failed, summary.lost) == (0, 1)


def test_batch_handler_may_answer_with_other_instances_of_its_objects(monkeypatch):
    monkeypatch.setattr(CrateGraph, "handle_sorting", lambda crates: dict.fromkeys(Crate.objects.all(), "sent"))
    Crate.objects.bulk_create(Crate() for _ in range(3))
    work(Crate)
    assert Crate.stator.counts() == {"sorting": 0, "sent": 3, "lost": 0}


def test_result_for_an_object_outside_the_batch_is_an_error():
    Crate.objects.create(deed="stranger")
    work(Crate)
    assert "1 objects that are not in its batch" in Report.objects.get().message


def test_asynchronous_and_atomic_batches_move_and_undo():
    Freight.objects.bulk_create([*(Freight() for _ in range(5)), Freight(weight=-1)])
    work(Freight)
    assert Freight.stator.counts() == {"loading": 0, "loaded": 1, "gone": 5}
    heavy = Freight.objects.get(weight=-1)
    assert (heavy.state_failures, heavy.state_claim) == (1, None)
    assert sorted(Written.objects.values_list("about", flat=True)) == sorted(
        Freight.objects.filter(state="gone").values_list("pk", flat=True)
    )


def test_sql_transition_moves_all_that_match_and_joins(operations):
    blocked = Customer.objects.create(blocked=True)
    small, large, theirs = Order.objects.create(amount=5), Order.objects.create(amount=500), Order(customer=blocked)
    theirs.save()
    made = operations(Order)
    assert chores.move_matching(made, 100).count == 2
    states = dict(Order.objects.values_list("pk", "state"))
    assert states == {small.pk: "waiting", large.pk: "working", theirs.pk: "shipped"}
    assert chores.move_matching(made, 100).count == 0
    large.refresh_from_db()
    # attempt_immediately=False: due after one interval.
    assert (large.state_version, large.state_ready, large.state_next_attempt is None) == (1, False, False)
    assert set(Stats.objects.values_list("source", "to", "handled")) == {
        ("waiting", "working", 1),
        ("waiting", "shipped", 1),
    }
    assert all(0 < stats.longest == stats.seconds < 60 for stats in Stats.objects.all())


def test_sql_transition_keeps_history_and_tells_those_who_listen(operations):
    order = Order.objects.create(amount=500)
    heard = []

    def hear(sender, moves, **kwargs):
        heard.extend(moves)

    transitioned.connect(hear, sender=Order)
    try:
        moves = chores.move_matching(operations(Order), 100)
    finally:
        transitioned.disconnect(hear, sender=Order)
    assert [(move.pk, move.source, move.to) for move in moves.listed] == [(order.pk, "waiting", "working")]
    entry = History.objects.get(object_pk=str(order.pk))
    assert (entry.kind, entry.source, entry.to, entry.version) == ("move", "waiting", "working", 1)
    assert (entry.reason, entry.model_label) == ("condition met", "testapp.order")


def been_there(order, seconds):
    """Let it have entered its state so long ago."""
    QuerySet(Order).filter(pk=order.pk).update(state_changed=ago(seconds))


def stay_of(order):
    """The seconds that its only row of history has."""
    return History.objects.get(object_pk=str(order.pk)).stay


def test_history_of_sql_transitions_has_the_time_in_the_state_that_was_left(operations):
    orders = {seconds: Order.objects.create(amount=500) for seconds in (90, 5000)}
    for seconds, order in orders.items():
        been_there(order, seconds)
    assert chores.move_matching(operations(Order), 100).count == 2
    for seconds, order in orders.items():
        assert seconds <= stay_of(order) < seconds + 30


@pytest.mark.parametrize("failure", [None, describe(ValueError("unlucky"))], ids=["moved", "failed"])
def test_history_of_attempts_has_the_time_in_the_state_that_was_left(operations, failure):
    made = operations(Order)
    orders = {seconds: Order.objects.create(state="working", amount=seconds) for seconds in (90, 5000)}
    for seconds, order in orders.items():
        been_there(order, seconds)
    Order.stator.retry()
    claims = made.claim([OrderGraph.working], 10)
    assert made.record([(claim, Moved(OrderGraph.shipped, failure)) for claim in claims]).moves
    for seconds, order in orders.items():
        assert seconds <= stay_of(order) < seconds + 30
    [stats] = Stats.objects.all()
    assert stats.longest == pytest.approx(stay_of(orders[5000]))
    assert stats.seconds == pytest.approx(stay_of(orders[90]) + stay_of(orders[5000]))


def test_history_of_errors_and_acts_has_no_stay_and_that_of_moves_by_hand_has(operations):
    made = operations(Order)
    order = Order.objects.create(state="working", amount=1)
    been_there(order, 90)
    Order.stator.retry(actor="ada")
    claims = made.claim([OrderGraph.working], 10)
    made.record([(claims[0], Waiting(60, describe(ValueError("unlucky"))))])
    order.transition_perform("shipped", actor="ada")
    kept = {entry.kind + entry.to: entry.stay for entry in History.objects.all()}
    assert sorted(kept) == ["error", "hand", "handshipped"]
    assert (kept["error"], kept["hand"]) == (None, None)
    assert 90 <= kept["handshipped"] < 120


def test_clock_that_was_set_back_leaves_no_stay_below_nothing(operations):
    order, other = Order.objects.create(amount=500), Order.objects.create(amount=5)
    for one in (order, other):
        been_there(one, -3600)
    assert chores.move_matching(operations(Order), 100).count == 1
    other.transition_perform("shipped")
    assert (stay_of(order), stay_of(other)) == (0, 0)


def test_sql_transition_leaves_claimed_rows_alone_and_is_bounded(operations):
    Order.objects.bulk_create(Order(amount=500) for _ in range(5))
    made = operations(Order)
    assert chores.move_matching(made, 3).count == 3
    assert chores.move_matching(made, 3).count == 2
    Order.stator.retry()
    claims = made.claim(list(OrderGraph.automatic_states), 5)
    QuerySet(Order).update(amount=-1)
    assert chores.move_matching(made, 10).count == 0
    assert len(claims) == 5


def test_worker_takes_sql_transitions_at_its_scheduling_pass():
    Order.objects.bulk_create(Order(amount=500) for _ in range(3))
    work(Order, schedule_interval=0.1)
    assert Order.stator.counts()["working"] == 3


@pytest.mark.parametrize("condition", ["paid", None, 3, ("amount", 3)])
def test_condition_that_is_none_is_refused_by_name(condition):
    with pytest.raises(GraphError, match=r"Wrong\.new\.when\(.*\): must get a condition, such as Q"):

        class Wrong(StateGraph):
            new = State()
            done = State()
            new.when(condition).to(done)


def test_state_that_is_left_by_conditions_alone_needs_no_handler():
    class Conditional(StateGraph):
        new = State()
        done = State()
        new.when(Q(pk__gt=0)).to(done)

    assert not Conditional.new.automatic
    assert Conditional.new.children == {Conditional.done}


def test_history_has_a_row_for_each_move_error_and_act_of_a_person():
    order = Order.objects.create(amount=101)
    order.transition_perform("working", actor="ada", reason="checked")
    Order.stator.retry()
    work(Order)
    QuerySet(Order).update(amount=7)
    Order.stator.retry()
    work(Order)
    entries = list(History.objects.filter(object_pk=str(order.pk)).order_by("pk"))
    assert [(entry.kind, entry.source, entry.to, entry.version) for entry in entries] == [
        ("hand", "waiting", "working", 1),
        ("error", "working", "", 1),
        ("move", "working", "shipped", 2),
    ]
    hand, error, move = entries
    assert (hand.actor, hand.reason) == ("ada", "checked")
    assert (error.error, len(error.fingerprint), error.attempts) == ("ValueError: unlucky", 16, 1)
    assert move.attempts == 2
    assert all(entry.worker and entry.duration >= 0 for entry in (error, move))


def test_move_that_an_error_caused_is_kept_with_the_error(operations):
    made = operations(Order)
    Order.objects.create(state="working", amount=1)
    Order.objects.create(state="working", amount=2)
    claims = made.claim(list(OrderGraph.automatic_states), 10) or []
    Order.stator.retry()
    claims = claims or made.claim(list(OrderGraph.automatic_states), 10)
    failure = describe(ValueError("unlucky"))
    shipped = OrderGraph.states["shipped"]
    made.record([(claims[0], Moved(shipped, failure)), (claims[1], Moved(shipped))])
    kept = {entry.object_pk: (entry.kind, entry.error, entry.fingerprint) for entry in History.objects.all()}
    assert kept == {
        str(claims[0].pk): ("move", "ValueError: unlucky", failure.fingerprint),
        str(claims[1].pk): ("move", "", ""),
    }


def test_claim_that_a_constraint_of_the_model_refuses_takes_nothing(operations, monkeypatch):
    monkeypatch.setattr(refusals, "SHORTLY", 0.0)
    made = operations(Transfer)
    Transfer.objects.create()

    def refuse(execute, sql, params, many, context):
        raise IntegrityError("there is one already")

    if connection.vendor == "postgresql" and type(made) is not Operations:
        pytest.skip("its claims are not sent by Django's cursor")
    with connection.execute_wrapper(lambda *call: refuse(*call) if "UPDATE" in call[1] else call[0](*call[1:])):
        assert made.claim(list(made.graph.automatic_states), 1) == []
    assert len(made.claim(list(made.graph.automatic_states), 1)) == 1


def test_limited_state_is_claimed_up_to_its_limit_over_all_workers(operations):
    Visitor.objects.bulk_create(Visitor() for _ in range(5))
    states = list(Visitor.state_graph.automatic_states)
    first, second = operations(Visitor), operations(Visitor)
    taken = first.claim(states, 1)
    taken += second.claim(states, 10)
    assert len(taken) == 2
    assert first.claim(states, 10) == []
    Visitor.stator.filter(pk=taken[0].pk).unlock()
    assert len(second.claim(states, 10)) == 1


def test_limited_state_is_drained_all_the_same():
    Visitor.objects.bulk_create(Visitor() for _ in range(9))
    work(Visitor)
    assert Visitor.stator.counts() == {"queued": 0, "through": 9}


# What a state saves with its outcome.


def measured(**values):
    """The fields of measures by their deed, after a worker has been at them."""
    for deed in values.pop("deeds"):
        Measure.objects.create(deed=deed)
    work(Measure)
    return {measure.deed: measure for measure in Measure.objects.all()}


def test_saved_fields_are_written_with_the_move_and_no_others():
    twin = Written.objects.create(about=1)
    one = measured(deeds=["move"])["move"]
    assert (one.state, one.size, one.found) == ("done", one.pk * 10, {"deed": "move", "\u00fc": [1, None]})
    assert (one.label, one.due, one.twin) == (f'it\'s {{{one.pk}}}, "quoted"', None, twin)
    assert one.not_saved == "kept"


def test_saved_fields_are_written_when_the_object_stays_but_not_after_an_error():
    found = measured(deeds=["wait", "raise"])
    assert (found["wait"].state, found["wait"].size) == ("new", found["wait"].pk * 10)
    assert (found["raise"].size, found["raise"].found, found["raise"].state_failures) == (1, None, 1)


def test_value_that_does_not_fit_is_an_error_of_its_own_object():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite stores text of any length")
    found = measured(deeds=["move", "long"])
    assert (found["move"].state, found["move"].size) == ("done", found["move"].pk * 10)
    assert (found["long"].state, found["long"].label) == ("new", "none")
    assert "too long" in Report.objects.get().message


@pytest.mark.parametrize(("deed", "error"), [("text", "ValueError"), ("json", "TypeError")])
def test_value_that_its_field_does_not_take_is_an_error_of_its_own_object(deed, error):
    found = measured(deeds=["move", deed, "expression"])
    assert (found["move"].state, found["move"].size) == ("done", found["move"].pk * 10)
    assert found["expression"].state == "done"
    assert (found[deed].state, found[deed].size, found[deed].state_failures) == ("new", 1, 1)
    assert Report.objects.get().error == error


def test_expression_is_worked_out_by_the_database():
    found = measured(deeds=["move", "expression"])
    assert (found["expression"].state, found["expression"].size) == ("done", 6)
    assert found["move"].size == found["move"].pk * 10


def test_holder_that_lost_its_claim_saves_nothing(operations):
    made = operations(Measure)
    kept, lost = Measure.objects.create(deed="move"), Measure.objects.create(deed="move")
    claims = made.claim(list(MeasureGraph.automatic_states), 10)
    Measure.stator.filter(pk=lost.pk).unlock()
    values = {"size": 7, "found": None, "label": "x", "due": timezone.now(), "twin": None}
    written = made.record([(claim, Moved(MeasureGraph.done, values=values)) for claim in claims])
    assert [claim.pk for claim in written.lost] == [lost.pk]
    kept.refresh_from_db()
    lost.refresh_from_db()
    assert (kept.size, kept.label, kept.due) == (7, "x", values["due"])
    assert (lost.size, lost.label, lost.due) == (1, "none", None)


def test_outcome_without_values_leaves_the_fields_as_they_are(operations):
    made = operations(Measure)
    one, other = Measure.objects.create(), Measure.objects.create()
    values = {"size": 7, "found": [1], "label": "x", "due": None, "twin": None}
    by_pk = {claim.pk: claim for claim in made.claim(list(MeasureGraph.automatic_states), 10)}
    made.record([(by_pk[one.pk], Moved(MeasureGraph.done, values=values)), (by_pk[other.pk], Moved(MeasureGraph.done))])
    assert set(Measure.objects.values_list("pk", "size", "label")) == {(one.pk, 7, "x"), (other.pk, 1, "none")}


# Who may claim, and what is never left alone.


def test_worker_claims_what_the_model_lets_it_claim(operations):
    near, far = Ride.objects.create(), Ride.objects.create(place="far")
    made = operations(Ride)
    assert [claim.pk for claim in made.claim(list(made.graph.automatic_states), 10)] == [near.pk]
    far.refresh_from_db()
    assert far.state_ready
    assert far.state_claim is None


def test_worker_that_may_not_claim_is_idle_until_it_may(monkeypatch):
    far = Ride.objects.create(place="far")
    assert work(Ride).handled == {}
    monkeypatch.setattr(Ride, "places", ["far"])
    assert work(Ride).handled == {"testapp.ride": 1}
    far.refresh_from_db()
    assert far.state == "done"


def test_row_of_a_state_without_quarantine_is_claimed_however_many_leases_it_lost(operations):
    ride = Ride.objects.create()
    made = operations(Ride)
    for _ in range(made.settings.MAX_CRASHES + 2):
        claims = [made.claim(list(made.graph.automatic_states), 1, crashes=crashes) for crashes in Crashes]
        assert sum(map(len, claims)) == 1
        QuerySet(Ride).update(state_locked_until=Now())
        assert len(made.reap(10)) == 1
    ride.refresh_from_db()
    assert ride.state_ready
    assert ride.state_crashes == made.settings.MAX_CRASHES - 1
    assert not Report.objects.exists()
    assert work(Ride).moved == {("testapp.ride", "done"): 1}
