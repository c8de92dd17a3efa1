"""The order of claims: priorities, ageing and shares, for each implementation."""

import random
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, models
from django.db.models.functions import Upper
from django.test.utils import isolate_apps

from stator.db.claims import AGEING, HEAD_EVERY, HEAD_PART, Turn
from stator.graph.outcomes import Moved
from stator.models import StatorModel
from stator.rows.claimable import Crashes
from stator.rows.state_column import StateField
from tests.stator.making import ago, at_once, automatic, locked_elsewhere, operations_of, put, raw
from tests.testapp.fairness import Appointment, Consignment, Donation, Enquiry, Rescue, Sender, Ticket, TicketGraph
from tests.testapp.models import Line

pytestmark = pytest.mark.usefixtures("transactional_db")

NEW = [TicketGraph.new]


def pks(claims):
    return [claim.pk for claim in claims]


def tenants(claims):
    return Counter(claim.instance.tenant for claim in claims)


def many(model, number, **columns):
    raw(model).bulk_create([model(**columns) for _ in range(number)])


# Priority


def test_smaller_numbers_are_claimed_sooner_and_equal_ones_by_age(make):
    late = put(Ticket, urgency=1, state_changed=ago(10))
    old = put(Ticket, urgency=7, state_changed=ago(5000))
    first = put(Ticket, urgency=-3, state_changed=ago(1))
    early = put(Ticket, urgency=1, state_changed=ago(20))
    operations = make(Ticket)
    assert pks(operations.claim(NEW, 3)) == [first.pk, early.pk, late.pk]
    assert pks(operations.claim(NEW, 3)) == [old.pk]


FAR = 2**31 - 1


def rescues(*urgencies):
    return [put(Rescue, urgency=urgency).pk for urgency in urgencies]


def appointments(*days):
    return [
        put(Appointment, week=None if day is None else day // 7, weekday=0 if day is None else day % 7).pk
        for day in days
    ]


def donations(*sums):
    sender, _ = Sender.objects.get_or_create(pk=1)
    return [put(Donation, sender=sender, urgency=urgency).pk for urgency in sums]


IN_TURN = {
    "larger, some null": (rescues, [None, -FAR - 1, 5, FAR, 0, None, -3], [3, 2, 4, 6, 1, 0, 5]),
    "generated, some null": (appointments, [None, 15, -8, 0, None, 3], [2, 3, 5, 1, 0, 4]),
    "larger, without a sign, fair": (donations, [0, 9, 32767, 9], [2, 1, 3, 0]),
}


@pytest.mark.parametrize(("made", "values", "order"), IN_TURN.values(), ids=IN_TURN)
@pytest.mark.parametrize("at_a_time", [1, 100])
def test_priorities_are_larger_first_or_generated_if_declared_so_and_nulls_come_last(
    make, made, values, order, at_a_time
):
    keys = made(*values)
    operations = make({rescues: Rescue, appointments: Appointment, donations: Donation}[made])
    found = [pk for _ in range(AGEING - 1) for pk in pks(operations.claim(NEW, at_a_time))]
    assert [keys.index(pk) for pk in found] == order


@pytest.mark.parametrize("state", ["new", "narrow"])
@pytest.mark.parametrize("columns", [(Ticket, {}), (Enquiry, {"tenant": "a"})], ids=["urgent", "fair"])
def test_row_that_is_ready_before_its_time_is_in_no_line(make, columns, state):
    """However urgent it is."""
    model, own = columns
    put(model, state=state, state_next_attempt=ago(-60), **own, **({"urgency": 1} if model is Ticket else {}))
    due = put(model, state=state, **own)
    operations = make(model)
    found = [claim.pk for _ in range(3) for claim in operations.claim([TicketGraph.states[state]], 1)]
    assert found == [due.pk]
    assert raw(model).filter(state_ready=True).count() == 0


def test_row_that_waits_is_claimed_however_many_urgent_ones_come(make):
    many(Ticket, 30, urgency=1, state_changed=ago(20))
    waiting = [put(Ticket, urgency=9, state_changed=ago(seconds)).pk for seconds in (100, 90, 80)]
    operations, waits = make(Ticket), []
    for number in range(1, 3 * AGEING + 1):
        claims = operations.claim(NEW, 1)
        waits += [number for claim in claims if claim.pk in waiting]
        put(Ticket, urgency=1)
    assert waits == [AGEING, 2 * AGEING, 3 * AGEING]


def test_each_set_of_states_ages_by_itself(make):
    many(Ticket, 40, urgency=1)
    many(Ticket, 40, urgency=1, state="narrow")
    old = put(Ticket, urgency=9, state="narrow", state_changed=ago(500))
    operations, found = make(Ticket), []
    for _ in range(AGEING):
        operations.claim(NEW, 1)
        claims = operations.claim([TicketGraph.narrow], 1)
        found += pks(claims)
        operations.record([(claim, Moved(TicketGraph.done)) for claim in claims])
    assert found.index(old.pk) == AGEING - 1


# Shares


def test_one_with_very_many_rows_does_not_hold_up_the_others(make):
    many(Enquiry, 300, tenant="large", state_changed=ago(100))
    many(Enquiry, 2, tenant="small")
    many(Enquiry, 1, tenant="tiny")
    operations = make(Enquiry)
    assert tenants(operations.claim(NEW, 30)) == {"large": 27, "small": 2, "tiny": 1}
    assert tenants(operations.claim(NEW, 30)) == {"large": 30}


def test_values_take_turns_where_a_claim_is_smaller_than_their_number(make):
    for tenant in "abcde":
        many(Enquiry, 20, tenant=tenant)
    operations = make(Enquiry)
    turns = [tenants(operations.claim(NEW, 2)) for _ in range(5)]
    assert sum(turns, Counter()) == dict.fromkeys("abcde", 2)
    assert [tenants(operations.claim(NEW, 1)) for _ in range(5)] == [{tenant: 1} for tenant in "abcde"]


def test_claim_is_full_while_there_are_rows_whoever_has_them(make):
    random.seed(7)
    counts = {f"t{number}": random.choice([1, 1, 1, 2, 5, 40]) for number in range(60)}
    for tenant, number in counts.items():
        many(Enquiry, number, tenant=tenant)
    operations, left, came = make(Enquiry), sum(counts.values()), []
    while left:
        claims = operations.claim(NEW, 17)
        assert len(claims) == min(17, left)
        came += claims
        left -= len(claims)
    assert len(set(pks(came))) == len(came)
    assert tenants(came) == counts
    assert operations.claim(NEW, 17) == []


def test_rows_of_a_value_are_claimed_by_priority_and_now_and_then_by_age(make):
    one, two = Sender.objects.create(name="one"), Sender.objects.create(name="two")
    for sender in (one, two):
        for urgency in reversed(range(2 * AGEING)):
            put(Consignment, sender=sender, urgency=urgency, state_changed=ago(urgency))
    operations = make(Consignment)
    claims = [operations.claim(NEW, 2) for _ in range(AGEING)]
    urgencies = [[claim.instance.urgency for claim in taken] for taken in claims]
    assert all({claim.instance.sender_id for claim in taken} == {one.pk, two.pk} for taken in claims)
    assert urgencies == [[number] * 2 for number in range(AGEING - 1)] + [[2 * AGEING - 1] * 2]


def test_limited_state_shares_what_its_limit_leaves(make):
    many(Enquiry, 30, tenant="large", state="narrow", state_changed=ago(100))
    many(Enquiry, 1, tenant="small", state="narrow")
    operations, came = make(Enquiry), []
    for expected in (2, 2):
        claims = operations.claim([TicketGraph.narrow], 10)
        assert len(claims) == expected
        assert operations.claim([TicketGraph.narrow], 10) == []
        operations.record([(claim, Moved(TicketGraph.done)) for claim in claims])
        came += claims
    assert tenants(came) == {"large": 3, "small": 1}


def test_what_is_paused_has_no_turn(make):
    many(Enquiry, 3, tenant="large")
    many(Enquiry, 3, tenant="small")
    Enquiry.stator.pause(where={"tenant": "large"})
    assert tenants(make(Enquiry).claim(NEW, 10)) == {"small": 3}
    Enquiry.stator.pause("new")
    assert make(Enquiry).claim(automatic(make(Enquiry)), 10) == []


def test_rows_that_lost_a_lease_or_are_in_other_states_have_no_turn(make):
    put(Enquiry, tenant="a", state_crashes=1)
    put(Enquiry, tenant="b", state="narrow")
    put(Enquiry, tenant="c", state_ready=False)
    mine = put(Enquiry, tenant="d")
    operations = make(Enquiry)
    assert pks(operations.claim(NEW, 10)) == [mine.pk]
    assert tenants(operations.claim(NEW, 10, crashes=Crashes.FEW)) == {"a": 1}


@pytest.mark.postgresql
def test_row_that_an_application_holds_costs_nobody_a_turn(make):
    held = put(Enquiry, tenant="a")
    many(Enquiry, 5, tenant="b")
    operations = make(Enquiry)
    with locked_elsewhere(held):
        assert tenants(operations.claim(NEW, 3)) == {"b": 3}
    assert tenants(operations.claim(NEW, 3)) == {"a": 1, "b": 2}


@pytest.mark.postgresql
@pytest.mark.parametrize("model", [Ticket, Enquiry, Consignment])
def test_several_claimants_never_claim_a_row_twice_and_leave_none(make, model):
    senders = [Sender.objects.create(name=str(number)) for number in range(7)]
    random.seed(3)
    columns = {
        Ticket: lambda: {"urgency": random.randrange(3)},
        Enquiry: lambda: {"tenant": random.choice("aaaaaabcdefg")},
        Consignment: lambda: {"urgency": random.randrange(3), "sender": random.choice(senders)},
    }[model]
    raw(model).bulk_create([model(**columns()) for _ in range(600)])

    def drain():
        operations, found, empty = make(model), [], 0
        while empty < 3:
            claims = operations.claim(NEW, 23)
            found += pks(claims)
            empty = 0 if claims else empty + 1
        return found

    found = [pk for part in at_once(drain, drain, drain, drain) for pk in part]
    assert len(found) == 600
    assert len(set(found)) == 600


# The planner

FILL = {
    Ticket: "INSERT INTO testapp_ticket (place, {0}) SELECT n % 10, {1}",
    Enquiry: "INSERT INTO testapp_enquiry (tenant, {0}) SELECT CASE WHEN n % 10 = 0 THEN n % 500 ELSE -1 END, {1}",
    Consignment: "INSERT INTO testapp_consignment (pk, sender_id, {0}) SELECT n / 20 % 10, n / 2 % 10 + 1, {1}",
    Rescue: "INSERT INTO testapp_rescue (place, {0}) SELECT nullif(n % 10, 3), {1}",
    Appointment: "INSERT INTO testapp_appointment (week, weekday, {0}) SELECT nullif(n % 10, 3), 0, {1}",
    Donation: "INSERT INTO testapp_donation (urgency, sender_id, {0}) SELECT n / 20 % 10, n / 2 % 10 + 1, {1}",
}
COLUMNS = (
    "state, state_ready, state_changed, state_attempts, state_failures, state_crashes, state_version",
    "'new', n % 2 = 0, now() - n * interval '1 s', 0, 0, 0, 0 FROM generate_series(1, 40000) n",
)


@pytest.mark.citus_lacks("plans that EXPLAIN shows as PostgreSQL does")
@pytest.mark.postgresql
@pytest.mark.parametrize("model", FILL)
def test_claim_of_a_hundred_of_very_many_walks_its_index(transactional_db, monkeypatch, model):
    Sender.objects.bulk_create([Sender(pk=number) for number in range(1, 11)])
    with connection.cursor() as cursor:
        cursor.execute(FILL[model].format(*COLUMNS))
        cursor.execute(f"ANALYZE {model._meta.db_table}")
    operations = operations_of(model)
    send, plans = operations.fetch, []

    def explain(statement, params, planner, often=False):
        plans.append("\n".join(line for (line,) in send(f"EXPLAIN ANALYZE {statement}", params, planner)))
        return []

    monkeypatch.setattr(operations, "fetch", explain)
    for _ in range(AGEING):
        operations.claim(NEW, 100)
    # The first claim is in turn, and the last by age.
    for plan, wanted in (plans[0], "st_ready_"), (plans[-1], "st_ready_" if model is Enquiry else "st_age_"):
        read = set(re.findall(r"Scan using (\w+) on", plan)) - {f"{model._meta.db_table}_pkey"}
        assert [name.startswith(wanted) for name in read] == [True], plan
        assert "Seq Scan on testapp" not in plan
        assert "Bitmap" not in plan
        assert not re.search(r"actual time=\S+ rows=\d{5,}", plan), plan


# Options

WRONG = {
    "ours, larger first": ({"priority": "-state_attempts"}, "is not a field with a column"),
    "twice": ({"priority": "--nothing"}, "is not a field with a column"),
    "text": ({"priority": "-tenant"}, "is a CharField; it must be an integer field"),
    "generated text": ({"priority": "shouted"}, "is a CharField; it must be an integer field"),
    "null key": ({"fair_by": "nothing"}, "may be null; give it a default instead"),
    "json": ({"fair_by": "data"}, "is a JSONField, whose values have no order"),
    "elsewhere": ({"fair_by": "above"}, "is in the table of Base; it must be in the table with the state"),
}


@pytest.mark.parametrize(("meta", "message"), WRONG.values(), ids=WRONG)
def test_option_that_cannot_be_is_refused_when_the_class_is_made(meta, message):
    with isolate_apps("tests.testapp"), pytest.raises(ImproperlyConfigured, match=message) as caught:

        class Base(models.Model):
            above = models.IntegerField(default=0)

            class Meta:
                app_label = "testapp"

        class Enquiry(Base, StatorModel):
            state = StateField(TicketGraph)
            tenant = models.CharField(max_length=20)
            nothing = models.IntegerField(null=True)
            data = models.JSONField(default=dict)
            shouted = models.GeneratedField(
                expression=Upper("tenant"), output_field=models.CharField(max_length=20), db_persist=True
            )

            class Meta:
                app_label = "testapp"

            StatorMeta = type("StatorMeta", (), meta)

    assert "\n" not in str(caught.value)


# Where a claim begins


def test_a_claim_that_found_enough_tells_the_next_where_to_begin_for_a_while():
    turn, place = Turn(), (ago(50), 1)
    assert turn.begin(100.0) is None
    turn.end(place, 100.0, 100.01)
    assert turn.begin(100.02) == place
    turn.end((ago(40), 1), 100.02, 100.03)
    assert turn.begin(100.01 + HEAD_EVERY) is None
    # A claim from the head that took long is not made again at once: over a tenth of the time it would take.
    turn.end(place, 200.0, 203.0)
    assert turn.begin(203.0 + 9 * 3) == place
    assert turn.begin(203.0 + 3 / HEAD_PART) is None
    # So does one from a watermark, behind which a burst may stand.
    turn.end(place, 300.0, 300.01, at_head=False)
    assert turn.begin(300.02) == place


def test_line_is_strained_where_a_claim_from_its_head_takes_far_longer():
    turn, place = Turn(), (ago(50), 1)
    turn.end(place, 100.0, 100.2)
    assert not turn.strained, "nothing to compare with"
    turn.end(place, 100.25, 100.3)
    assert turn.strained
    turn.end(place, 100.3, 100.4)
    assert not turn.strained, "all claims are slow"
    turn.place = None
    turn.end(place, 100.4, 100.41)
    turn.end(place, 100.41, 100.411)
    assert not turn.strained, "some milliseconds may have other reasons"


@pytest.mark.postgresql
def test_rows_before_the_place_are_claimed_from_the_head(transactional_db, monkeypatch):
    operations = operations_of(Line, "vendor")
    rows = [put(Line, state_changed=ago(1000 - number)) for number in range(6)]
    now = [100.0]
    monkeypatch.setattr("stator.db.claims_postgresql.time", SimpleNamespace(monotonic=lambda: now[0]))
    states = automatic(operations)
    assert pks(operations.claim(states, 2)) == [rows[0].pk, rows[1].pk]
    earlier = put(Line, state_changed=ago(5000))
    assert pks(operations.claim(states, 2)) == [rows[2].pk, rows[3].pk]
    now[0] += HEAD_EVERY
    assert pks(operations.claim(states, 2)) == [earlier.pk, rows[4].pk]
    # Too few are left behind the place: the next claim sees what came before it.
    earlier = put(Line, state_changed=ago(5000))
    assert pks(operations.claim(states, 2)) == [rows[5].pk]
    later = put(Line, state_changed=ago(10))
    assert pks(operations.claim(states, 1)) == [earlier.pk]
    assert pks(operations.claim(states, 1)) == [later.pk]
