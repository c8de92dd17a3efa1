"""Signals of a worker: when each is sent, and with which values."""

import logging

import pytest
from django.db import transaction

from stator import signals
from stator.models import Stats
from stator.signals import claim_ended, failed, lease_lost, on_schedule, on_start, transitioned
from tests.stator.making import ago, put, raw, row
from tests.stator.running import hearing, work
from tests.testapp.basic import Deed, Step
from tests.testapp.models import Line


@pytest.mark.usefixtures("transactional_db")
class TestSignals:
    def test_worker_tells_of_its_start_and_of_each_scheduling_pass(self):
        with hearing(on_start) as started, hearing(on_schedule) as scheduled:
            work(Line)
        assert len(started) == 1
        assert started[0][0].settings.LEASE == 60
        assert [values for _, values in scheduled] == [{"databases": ["default"]}]

    def test_signals_of_moves_come_after_their_commit(self):
        line, seen = put(Line), []

        def look(sender, moves, using, **kwargs):
            seen.extend((sender, move.pk, move.source, move.to, using, row(line).state_version) for move in moves)

        transitioned.connect(look)
        try:
            work(Line)
        finally:
            transitioned.disconnect(look)
        assert [told[:5] for told in seen] == [
            (Line, line.pk, "first", "second", "default"),
            (Line, line.pk, "second", "last", "default"),
        ]
        assert seen[0][5] >= 1
        assert seen[1][5] == 2

    def test_failures_are_sent_as_signals(self, deeds):
        deeds["astray"] = lambda instance: "nowhere"
        deed = Deed.objects.create(deed="astray")
        with hearing(failed) as heard:
            work(Deed)
        ((sender, told),) = heard
        assert (sender, told["using"]) == (Deed, "default")
        ((pk, failure),) = told["failures"]
        assert (pk, failure.kind) == (deed.pk, "stator.exceptions.InvalidTransition")

    @pytest.mark.parametrize(("late", "signal", "other"), [(0, claim_ended, lease_lost), (60, lease_lost, claim_ended)])
    def test_claims_that_ended_during_an_attempt_are_sent_as_signals(self, deeds, late, signal, other):
        def lose(instance):
            raw(Deed).filter(pk=instance.pk).update(state_claim=None, state_ready=False, state_next_attempt=ago(-60))
            instance.stator.deadline -= late
            return "done"

        deeds["lose"] = lose
        deed = Deed.objects.create(deed="lose")
        with hearing(signal) as heard, hearing(other) as not_heard:
            assert work(Deed).lost == (1 if late else 0)
        assert heard == [(Deed, {"pks": [deed.pk], "using": "default"})]
        assert not_heard == []

    def test_timeouts_are_sent_as_signals(self):
        put(Step, state="outside", state_changed=ago(7201))
        with hearing(transitioned) as heard:
            work(Step)
        assert [(move.source, move.to) for _, told in heard for move in told["moves"]] == [("outside", "failed")]

    def test_receiver_that_raises_is_logged_and_disturbs_nothing(self, caplog):
        def broken(sender, **kwargs):
            raise RuntimeError("in a receiver")

        line = put(Line)
        transitioned.connect(broken)
        try:
            with caplog.at_level(logging.ERROR, "stator"):
                work(Line)
        finally:
            transitioned.disconnect(broken)
        assert row(line).state == "last"
        assert any(record.message == "stator.receiver_failed" for record in caplog.records)

    def test_statistics_of_a_worker_are_complete(self):
        Line.objects.bulk_create(Line() for _ in range(20))
        work(Line)
        assert Stats.get_for_model(Line).most_recent_handled() == (40, 40, 40)


class TestWhatATestCounts:
    """The functions of ``on_commit`` in the transaction of a test, which is never committed."""

    @pytest.mark.django_db
    def test_creates_and_moves_add_none_that_nobody_listens_to(self, django_capture_on_commit_callbacks):
        with django_capture_on_commit_callbacks() as callbacks:
            line = Line.objects.create()
            Line.objects.bulk_create([Line(), Line()])
            line.state = "second"
            line.save()
            line.transition_perform("first")
            Line.objects.update(state="second")
            Line.stator.retry()
            transaction.on_commit(print)
        assert callbacks == [print]

    @pytest.mark.django_db
    @pytest.mark.parametrize("signal", [signals.became_ready, signals.transitioned], ids=["ready", "moved"])
    def test_receivers_of_a_project_are_told_when_the_functions_are_run(
        self, signal, django_capture_on_commit_callbacks
    ):
        told = []
        signal.connect(hear := lambda sender, **values: told.append(sender))
        try:
            with django_capture_on_commit_callbacks(execute=True) as callbacks:
                Line.objects.create().transition_perform("second")
        finally:
            signal.disconnect(hear)
        assert set(told) == {Line}
        assert len(callbacks) == len(told)
