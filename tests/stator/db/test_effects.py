"""Effects of outcomes and moves: each writes the same by the one statement for the rows and by one of its own.

``test_records_refused`` refuses rows of batches for each kind of outcome.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from stator.db import effects
from stator.db.effect_table import EFFECTS, FOLLOWING, OF_ROWS
from stator.db.effects import AFTER
from stator.db.followed_moves import FollowedMoves
from stator.db.program_claims import AllOrNone
from stator.db.saved_fields import SavedFields
from stator.extensions.related.effect import HandedOn
from stator.extensions.reports.effects import KeptHistory, KeptReports
from stator.extensions.stats.effect import CountedAttempts
from stator.extensions.steps.effect import ForgottenSteps
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.models import Event, History, Report, Stats
from stator.models import Step as DurableStep
from tasks.graph import TaskGraph
from tasks.models import Queue, Run, Task
from tasks.queue.kept_runs import KeptRuns
from tests.stator.db.calling import ERROR
from tests.stator.making import ago, change, claim_all, operations_of, put, raw
from tests.tasks.making import make_queue
from tests.testapp.basic import Step, StepGraph
from tests.testapp.baskets import Basket, Item, ItemGraph
from tests.testapp.power import Measure, MeasureGraph
from tests.testapp.stepped import KeptPurchase, PurchaseGraph

pytestmark = pytest.mark.usefixtures("transactional_db")

SAVED = {"size": 7, "found": {"a": [1, None]}, "label": "x", "due": None, "twin": None}
TABLES = (
    Stats,  # stator.extensions.stats
    *(History, Report),  # stator.extensions.reports
    DurableStep,  # stator.extensions.steps
    Event,  # stator.extensions.events
    Run,
)


@dataclass(frozen=True)
class Case:
    """An outcome with which an effect writes something. ``state``: of the row."""

    effect: type[effects.Effect]
    outcome: Outcome
    model: Any = Step
    state: str = "new"
    values: dict[str, Any] = field(default_factory=dict)


CASES = {
    "fields with a move": Case(SavedFields, Moved(MeasureGraph.done, values=SAVED), Measure),
    "fields of an object that stays": Case(SavedFields, Waiting(5.0, values=SAVED), Measure),
    "count of a move": Case(CountedAttempts, Moved(StepGraph.done)),  # stator.extensions.stats
    "count of an error": Case(CountedAttempts, Waiting(5.0, ERROR)),  # stator.extensions.stats
    "count of a wait": Case(CountedAttempts, Waiting(5.0)),  # stator.extensions.stats
    "history of a move": Case(KeptHistory, Moved(PurchaseGraph.paid), KeptPurchase),  # stator.extensions.reports
    "history of an error": Case(KeptHistory, Waiting(5.0, ERROR), KeptPurchase),  # stator.extensions.reports
    "report of an error": Case(KeptReports, Waiting(5.0, ERROR)),  # stator.extensions.reports
    "report of a move by an error": Case(KeptReports, Moved(StepGraph.failed, ERROR)),  # stator.extensions.reports
    "report of a reason": Case(KeptReports, Waiting(5.0, None, "not yet")),  # stator.extensions.reports
    "run of a task": Case(KeptRuns, Moved(TaskGraph.completed, values={"result": 7}), Task, "pending"),
    "move of one of several": Case(HandedOn, Moved(ItemGraph.packed), Item, "waiting"),  # stator.extensions.related
}
assert EFFECTS.all is not None
TABLE = sorted((*OF_ROWS, *EFFECTS.all, *FOLLOWING), key=lambda effect: effect.follows)
# Columns that differ from row to row, and from worker to worker.
OWN = ("id", "shard")


@pytest.mark.needs("queue")
def test_table_has_all_effects_in_their_order():
    assert TABLE == [
        AllOrNone,
        SavedFields,
        CountedAttempts,  # stator.extensions.stats
        KeptHistory,  # stator.extensions.reports
        KeptReports,  # stator.extensions.reports
        KeptRuns,
        ForgottenSteps,  # stator.extensions.steps
        HandedOn,  # stator.extensions.related
        FollowedMoves,
    ]
    bound = [type(effect) for effect in operations_of(Task).records.effects]
    assert bound == [each for each in TABLE if each in bound]
    assert KeptRuns in bound


@pytest.mark.needs("queue")
def test_every_effect_that_one_statement_may_write_has_a_case():
    # The first writes nothing.
    may = {each for each in TABLE[1:] if each.part is not effects.Effect.part}
    assert may == {case.effect for case in CASES.values()}


@pytest.mark.parametrize("happens", ["nothing", "unlocked"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_effect_is_the_same_in_both_implementations_with_the_statement_and_after_it(case, happens, monkeypatch):
    kept = kept_beside(case, happens)
    assert any(map(any, kept)) == (happens == "nothing")
    assert kept == kept_beside(case, happens, "portable")
    if not operations_of(case.model).capabilities.writes_in_with:
        return
    asked = case.effect.wants
    answers: list[Any] = []

    def after(effect: Any, act: Any) -> Any:
        answers.append(asked(effect, act))
        return answers[-1] and AFTER

    monkeypatch.setattr(case.effect, "wants", after)
    assert kept == kept_beside(case, happens)
    assert answers
    assert not {AFTER, None}.intersection(answers)


def kept_beside(case, happens, implementation="vendor"):
    """Record an outcome twice; return what is kept beside the row, without what differs from time to time."""
    operations = operations_of(case.model, implementation)
    instance = made(case)
    for _ in range(2):
        change(instance, state=case.state, state_ready=True, state_next_attempt=None, state_changed=ago(1000))
        [claim] = [claim for claim in claim_all(operations) if claim.pk == instance.pk]
        if happens == "unlocked":
            change(instance, state_claim=None, state_locked_until=None)
        operations.record([(claim, case.outcome)])
    found = [rows_of(table, instance, operations) for table in TABLES]
    if case.model is Measure:
        found.append([happens == "nothing"])
        saved = raw(Measure).values(*SAVED).get(pk=instance.pk)
        assert (saved == SAVED) == (happens == "nothing")
    if case.model is Item:
        found.append([basket.state for basket in raw(Basket) if happens == "nothing"])
    for table in (*TABLES, case.model, Basket):
        raw(table).all().delete()
    return found


def made(case):
    if case.model is Task:
        queue = raw(Queue).first() or make_queue(actions_elsewhere=False)
        return raw(Task).get(pk=queue.publish("echo", data=1).task.pk)
    if case.model is Item:
        basket = Basket.objects.create(state="collecting")
        put(Item, state="packing", basket=basket)
        return put(Item, state=case.state, basket=basket)
    return put(case.model, state=case.state)


def rows_of(table, instance, operations):
    """The rows of a table as they are for each row of the model, each worker and each time."""
    mine = {"object_pk": str(instance.pk), "task_id": instance.pk, "worker": operations.worker_id}
    return [
        {name: value == mine[name] if name in mine else same(value) for name, value in row.items() if name not in OWN}
        for row in raw(table).order_by("pk").values()
    ]


def same(value):
    if isinstance(value, datetime | UUID):
        return type(value).__name__
    return round(value / 100) if isinstance(value, float) else value


@pytest.mark.postgresql
@pytest.mark.parametrize("effect", [CountedAttempts, KeptHistory])
def test_effect_of_a_move_without_a_handler_is_the_same_in_both_forms(effect, monkeypatch):
    def kept(implementation="vendor"):
        operations, instance = operations_of(KeptPurchase, implementation), put(KeptPurchase)
        rows = raw(KeptPurchase).filter(pk=instance.pk)
        assert operations.move_rows(rows, "new", PurchaseGraph.paid, 10, reason="timed out").count == 1
        found = [rows_of(each, instance, operations) for each in (Stats, History)]
        for table in (Stats, History):
            raw(table).all().delete()
        return found

    together = kept()
    assert all(together)
    assert kept("portable") == together
    asked = effect.wants
    monkeypatch.setattr(effect, "wants", lambda self, act: asked(self, act) and AFTER)
    assert kept() == together


@pytest.mark.parametrize("outcome", [Moved(StepGraph.done), Waiting(5.0), Released()])
def test_nothing_is_written_for_an_effect_that_is_not_wanted(make, outcome, monkeypatch):
    def refuse(*given):
        raise AssertionError("it is not wanted")

    for each in TABLE:
        monkeypatch.setattr(each, "wants", lambda self, act: None)
        for form in ("part", "values", "write"):
            monkeypatch.setattr(each, form, refuse)
    operations, step = make(), put(Step)
    [claim] = claim_all(operations)
    assert operations.record([(claim, outcome)]).lost == []
    change(step, state_ready=True, state_next_attempt=None)
    assert not any(raw(table).exists() for table in TABLES)


def test_outcome_that_has_something_to_tell_is_asked_about_after_others_that_had_nothing(make):
    operations = make(KeptPurchase)
    for failure in (None, ERROR):
        put(KeptPurchase)
        operations.record([(claim, Moved(PurchaseGraph.done, failure)) for claim in claim_all(operations)])
    told = [(bool(entry.error), entry.fingerprint) for entry in History.objects.order_by("pk")]
    assert told == [(False, ""), (True, ERROR.fingerprint)]
    assert Report.objects.get().message == ERROR.message
