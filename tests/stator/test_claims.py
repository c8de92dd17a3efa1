"""Claims for programs that are no workers: fenced as those are, and refused from the end of their lease on."""

from uuid import UUID

import pytest
from django.db.models import CharField, Q

from stator import claims
from stator.exceptions import LeaseLost
from stator.models import History, Report
from stator.rows.columns import after
from stator.statements import written
from tests.stator.making import ago, change, expire, put, raw, row
from tests.testapp.approvals import Packet
from tests.testapp.explained import Errand
from tests.testapp.faults import Effect, Job
from tests.testapp.power import Order

# What the program of these tests keeps of a claim that is renewed.
NOTED = written(""",
noted AS (UPDATE testapp_effect SET note = %(note)s::text FROM done WHERE version = done.pk AND claim = state_claim)""")

pytestmark = pytest.mark.django_db(transaction=True)


def claim_one(**options):
    (claim,) = claims.claim(Errand, **options)
    return claim


def end(claim, outcome):
    return claims.end([(claim, outcome)]).lost == [claim]


def hold(claim, seconds, where=None):
    """Renew a lease, and note that in the program's row for the claim."""

    def note():
        Effect.objects.filter(version=claim.pk, claim=claim.token).update(note="held")

    def renewal(note):
        return after(seconds), where or Q()

    return claims.hold(claim, (seconds, where), renewal, {"note": "held"}, {"note": CharField()}, also=NOTED, then=note)


def test_claims_are_picked_in_the_order_that_is_asked_for():
    rows = [put(Errand, tenant=tenant) for tenant in (3, 1, 2)]
    found = claims.claim(Errand, 2, pick=lambda errands: errands.filter(tenant__lt=3).order_by("-tenant"))
    assert [claim.pk for claim in found] == [rows[2].pk, rows[1].pk]
    assert [claim.pk for claim in claims.claim(Errand, 5)] == [rows[0].pk]


def test_what_is_ready_before_its_time_is_not_claimed():
    early, due = put(Errand, state_next_attempt=ago(-60)), put(Errand)
    given = []
    assert [claim.pk for claim in claims.claim(Errand, 5, then=lambda found: given.extend(found) or found)] == [due.pk]
    assert [claim.pk for claim in given] == [due.pk]
    assert (row(early).state_ready, row(early).state_claim, row(early).state_attempts) == (False, None, 0)


def test_lease_is_of_so_many_seconds_or_until_a_moment():
    first, second = put(Errand), put(Errand)
    claim_one(lease=10)
    claim_one(lease=after(100))
    held = [row(each).state_locked_until - row(each).state_attempted for each in (first, second)]
    assert [round(each.total_seconds()) for each in held] == [10, 100]


def test_claims_that_its_transaction_does_not_keep_are_released():
    first, second = put(Errand), put(Errand)
    (claim,) = claims.claim(Errand, 2, then=lambda found: [each for each in found if each.pk == first.pk])
    assert claim.pk == first.pk
    assert (row(second).state_claim, row(second).state_ready, row(second).state_attempts) == (None, True, 0)
    # An error there undoes it, and what comes first may keep anything from being claimed.
    with pytest.raises(ZeroDivisionError):
        claims.claim(Errand, then=lambda found: 1 / 0)
    assert claims.claim(Errand, first=lambda: False) == []
    assert [claim.pk for claim in claims.claim(Errand, first=lambda: True)] == [second.pk]


def test_claim_is_ended_once_by_a_move():
    put(Errand)
    claim = claim_one(worker="abcdefabcdef")
    assert claim.token.hex.startswith("abcdefabcdef")
    assert not end(claim, claims.moved(claim, "heir"))
    found = raw(Errand).get()
    assert (found.state, found.state_claim) == ("heir", None)
    assert end(claim, claims.moved(claim, "heir"))


def test_history_and_report_name_the_worker_that_claimed_and_not_the_process_that_found_the_claim():
    found = []
    for worker in ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"):
        put(Order, state="working", state_ready=True, state_next_attempt=None)
        [claim] = claims.claim(Order, worker=worker)
        found.append(claims.find(Order, claim.pk, claim.token))
    assert not end(found.pop(), claims.Waiting(0, claims.describe(ValueError("no"))))
    assert claims.end([(claim, claims.moved(claim, "shipped")) for claim in found]).lost == []
    kept = sorted((act.kind, act.worker) for act in History.objects.all())
    assert kept == [("error", "cccccccccccc"), ("move", "aaaaaaaaaaaa"), ("move", "bbbbbbbbbbbb")]
    assert Report.objects.get().worker == "cccccccccccc"


def test_many_claims_are_ended_together_and_those_that_have_ended_are_returned():
    rows = [put(Errand) for _ in range(4)]
    found = claims.claim(Errand, 4)
    end(found[0], claims.Released())
    expire(rows[1])
    written = claims.end([(claim, claims.moved(claim, "heir")) for claim in found])
    assert (written.lost, [move.pk for move in written.moves]) == (found[:2], [claim.pk for claim in found[2:]])
    assert [row(each).state for each in rows] == ["new", "new", "heir", "heir"]


def test_ends_that_mean_nothing_are_refused():
    put(Errand)
    Job.objects.create()
    ends = [(claim, claims.Waiting(0)) for model in (Errand, Job) for claim in claims.claim(model)]
    with pytest.raises(ValueError, match="several models"):
        claims.end(ends)
    [(claim, _), _] = ends
    with pytest.raises(ValueError, match="new saves nothing"):
        claims.moved(claim, "heir", {"tenant": 3})
    with pytest.raises(ValueError, match="no transition to new"):
        claims.moved(claim, "new")


def test_claim_is_not_ended_unless_its_row_is_as_it_should_be():
    errand = put(Errand, tenant=3)
    claim = claim_one()
    for tenant, lost in ((4, [claim]), (3, [])):
        assert claims.end([(claim, claims.Released())], where=Q(tenant=tenant)).lost == lost
        assert (row(errand).state_claim is None) is not bool(lost)


def test_retry_counts_and_release_does_not():
    put(Errand)
    end(claim_one(), claims.Waiting(0, reason="not yet"))
    assert raw(Errand).get().state_attempts == 1
    claims.bring_up(Errand)
    end(claim_one(), claims.Released())
    assert raw(Errand).get().state_attempts == 1


@pytest.mark.parametrize("kind", ["waits", "is released", "moves"])
def test_holder_past_its_lease_is_refused_before_anybody_reaps_it(kind):
    errand = put(Errand)
    claim = claim_one()
    expire(errand)
    before = row(errand)
    outcomes = {"waits": claims.Waiting(0), "is released": claims.Released(), "moves": claims.moved(claim, "heir")}
    assert end(claim, outcomes[kind])
    assert row(errand).__dict__ | {"_state": None} == before.__dict__ | {"_state": None}
    assert not History.objects.exists()


def test_lease_is_held_for_longer_while_the_row_is_as_it_should_be():
    errand = put(Errand)
    claim = claim_one(lease=5)
    other, mine = (Effect.objects.create(version=errand.pk, claim=token) for token in (UUID(int=7), claim.token))
    assert not hold(claim, 500, where=Q(tenant=99))
    assert hold(claim, 50)
    assert [fresh.note for fresh in Effect.objects.filter(pk__in=[other.pk, mine.pk]).order_by("pk")] == ["", "held"]
    assert 40 < (row(errand).state_locked_until - row(errand).state_attempted).total_seconds() < 60
    expire(errand)
    assert hold(claim, 50) is None


def test_due_rows_are_brought_up_and_expired_leases_ended():
    errand, other = put(Errand), put(Errand)
    change(other, state_ready=False, state_next_attempt=ago(1))
    claim = claim_one()
    assert claim.pk == errand.pk
    assert claims.bring_up(Errand) == 0
    assert row(other).state_ready
    expire(errand)
    assert claims.bring_up(Errand) == 1
    assert row(errand).state_claim is None


def test_programs_that_lose_leases_do_not_quarantine_a_row():
    errand = put(Errand)
    for _ in range(5):
        claim_one(pick=lambda errands: errands.order_by("pk"))
        expire(errand)
        claims.bring_up(Errand)
    assert not Errand.stator.quarantined().exists()


def test_claim_is_found_by_its_token_in_a_state_that_this_code_knows():
    put(Errand)
    claim = claim_one()
    assert claims.find(Errand, claim.pk, claim.token).still_mine()
    raw(Errand).update(state="of tomorrow")
    with pytest.raises(LeaseLost, match="is in state 'of tomorrow', which this code does not know"):
        claims.find(Errand, claim.pk, claim.token)
    assert claims.find_many(Errand, {claim.pk: claim.token}) == []
    raw(Errand).update(state="new")
    end(claim, claims.Released())
    with pytest.raises(LeaseLost):
        claims.find(Errand, claim.pk, claim.token)
    assert claims.longest_lease(Errand) >= 60


def test_claim_of_a_program_has_the_event_that_brought_its_object():
    packet = put(Packet)
    packet.stator.send("pack", {"note": "mind the glass"}, by="shop")
    [held] = claims.claim(Packet)
    found = claims.find(Packet, held.pk, held.token)
    [again] = claims.find_many(Packet, {held.pk: held.token})
    assert {each.event.payload["note"] for each in (held, found, again)} == {"mind the glass"}
