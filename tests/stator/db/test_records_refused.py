"""A fence that refuses none, some or all rows of a batch gives an ordinary answer, for each kind of record."""

from contextlib import ExitStack
from typing import NamedTuple

import pytest

from stator.db.interface import new_token
from stator.extensions.steps.attempt import STEPS
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.models import History, Report, Stats
from stator.models import Step as DurableStep
from stator.rows.claimable import Crashes
from tests.stator.db.calling import ERROR, record
from tests.stator.making import automatic, change, claim_all, expire, locked_elsewhere, put, raw
from tests.testapp.approvals import Expense, ExpenseGraph
from tests.testapp.basic import Step, StepGraph
from tests.testapp.baskets import Basket, Item, ItemGraph
from tests.testapp.power import Measure, MeasureGraph
from tests.testapp.stepped import KeptPurchase, Purchase, PurchaseGraph

pytestmark = pytest.mark.usefixtures("transactional_db")

ROWS = 4
SAVED = {"size": 7, "found": None, "label": "x", "due": None, "twin": None}


class Kind(NamedTuple):
    """Claims of a model that end with an outcome; ``steps``: which of them have durable steps."""

    outcome: Outcome
    model: type = Step
    state: str = "new"
    steps: str = ""


KINDS = {
    "move": Kind(Moved(StepGraph.done)),
    "move with steps of refused claims": Kind(Moved(PurchaseGraph.paid), Purchase, steps="refused"),
    "move with history": Kind(Moved(PurchaseGraph.paid), KeptPurchase, steps="all"),
    "move with saved fields": Kind(Moved(MeasureGraph.done, values=SAVED), Measure),
    "move that others wait for": Kind(Moved(ItemGraph.packed), Item, "waiting"),
    "move into a state that keeps events": Kind(Moved(ExpenseGraph.paid), Expense, "approved"),
    "wait": Kind(Waiting(5.0)),
    "wait with steps": Kind(Waiting(5.0), Purchase, steps="all"),
    "error with history": Kind(Waiting(5.0, ERROR), KeptPurchase),
    "release": Kind(Released()),
    "release of a begun attempt": Kind(Released(begun=True, reason="the worker was stopped"), KeptPurchase),
}


def unlocked(instance):
    change(instance, state_claim=None, state_locked_until=None)


def claimed_by_another(instance):
    change(instance, state_claim=new_token("0" * 12))


def moved_past_us(instance):
    change(instance, state="of tomorrow")


def deleted(instance):
    raw(type(instance)).filter(pk=instance.pk).delete()


def prepared(operations, kind, refused):
    """Return claims of which the first ones are to be refused, with the steps that the kind has."""
    given = {"basket": Basket.objects.create(state="collecting")} if kind.model is Item else {}
    for _ in range(ROWS):
        put(kind.model, state=kind.state, **given)
    claims = claim_all(operations)
    for claim in claims[: ROWS if kind.steps == "all" else refused] if kind.steps else []:
        claim.own_steps().call("charge", lambda: 1)
    return claims


def rows_of(claims):
    model = claims[0].operations.model
    return {row["pk"]: row for row in raw(model).filter(pk__in=[claim.pk for claim in claims]).values("pk", *COLUMNS)}


COLUMNS = ["state", "state_version", "state_claim", "state_attempts", "state_failures", "state_ready"]


HAPPENS = [unlocked, claimed_by_another, moved_past_us, deleted]


@pytest.mark.parametrize(
    ("happens", "refused"),
    [
        (HAPPENS, ROWS - 1),
        (HAPPENS, ROWS),
        pytest.param([locked_elsewhere], 1, marks=pytest.mark.postgresql),
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_refused_rows_are_lost_or_deferred_and_the_others_recorded(make, name, happens, refused):
    kind = KINDS[name]
    operations = make(kind.model)
    claims = prepared(operations, kind, refused)
    with ExitStack() as stack:
        for claim, refuse in zip(claims[:refused], happens, strict=False):
            if refuse is locked_elsewhere:
                stack.enter_context(locked_elsewhere(claim.instance))
            else:
                refuse(claim.instance)
        before = rows_of(claims)
        written = record(operations, *((claim, kind.outcome) for claim in claims))
        again = [claim for claim, _ in written.deferred]
        assert [claims.index(claim) for claim in again or written.lost] == list(range(refused))
        assert bool(again) == (happens is not HAPPENS)
        after = rows_of(claims)
    accepted = claims[refused:]
    assert [after.get(claim.pk) for claim in claims[:refused]] == [before.get(claim.pk) for claim in claims[:refused]]
    assert all(after[claim.pk]["state_claim"] is None for claim in accepted)
    moved = isinstance(kind.outcome, Moved)
    assert [move.pk for move in written.moves] == [claim.pk for claim in accepted if moved]
    assert {pk for pk, _ in written.failures} == {claim.pk for claim in accepted if kind.outcome.failure}
    assert_kept_beside(kind, claims, accepted)
    if written.deferred:
        assert not record(operations, *written.deferred).lost
        assert_kept_beside(kind, claims, claims)


def assert_kept_beside(kind, claims, accepted):
    keys = {str(claim.pk) for claim in accepted}
    told = kind.outcome.failure or kind.outcome.reason
    assert set(Report.objects.values_list("object_pk", flat=True)) == (keys if told else set())
    assert sum(Stats.objects.values_list("handled", flat=True)) == (
        0 if isinstance(kind.outcome, Released) else len(accepted)
    )
    if kind.model is KeptPurchase and not isinstance(kind.outcome, Released):
        assert set(History.objects.values_list("object_pk", flat=True)) == keys
    with_steps = set(DurableStep.objects.values_list("object_pk", flat=True))
    stays = not isinstance(kind.outcome, Moved) or kind.model is KeptPurchase
    there = rows_of(claims)
    kept = [claim for claim in claims if STEPS.of(claim) and (stays or claim not in accepted)]
    assert with_steps == {str(claim.pk) for claim in kept if claim.pk in there}


@pytest.mark.parametrize("refused", [1, ROWS])
def test_renewal_of_claims_of_which_some_have_ended(make, refused):
    operations = make(Step)
    claims = prepared(operations, KINDS["move"], refused)
    for claim in claims[:refused]:
        unlocked(claim.instance)
    for _ in range(2):
        assert operations.renew(claims) == {id(claim) for claim in claims[:refused]}


@pytest.mark.parametrize("left", [0, 1])
def test_reaping_of_leases_of_which_some_were_ended_before(make, left):
    operations = make(KeptPurchase)
    claims = prepared(operations, Kind(Moved(PurchaseGraph.paid), KeptPurchase), 0)
    expire(*(claim.instance for claim in claims))
    for claim in claims[left:]:
        unlocked(claim.instance)
    assert {pk for pk, _ in operations.reap(ROWS)} == {claim.pk for claim in claims[:left]}
    assert {claim.pk for claim in operations.claim(automatic(operations), ROWS, crashes=Crashes.FEW)} == {
        claim.pk for claim in claims[:left]
    }
