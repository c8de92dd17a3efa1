"""A record finds rows where their claim has put them, and those that are not there any more by their key."""

import re

import pytest
from django.db import connection

from stator.graph.outcomes import Moved
from tests.stator.making import automatic, change, operations_of, put, row
from tests.testapp.basic import Step, StepGraph

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

if connection.vendor == "postgresql":
    from stator.db import sql

# Where the table is large for its rows, the keys are looked up together, by a bitmap.
SCANS = re.compile(r"(Tid|Index|Bitmap Heap) Scan(?: using \w+_pkey)? on testapp_step t(?:_\d+)?\b[^\n]*(actual|never)")


@pytest.fixture
def operations():
    """While an old snapshot is held open."""
    operations = operations_of(Step)
    operations.claims.lines.next(automatic(operations)).strained = True
    return operations


@pytest.fixture
def claims(operations):
    for _ in range(3):
        put(Step)
    return operations.claim(automatic(operations), 3)


def ended(claims):
    return [(claim, Moved(StepGraph.done)) for claim in claims]


def reads(operations, claims, monkeypatch):
    """Which ways to the rows the record takes, with how many rows it found by each."""
    fetch, plans = operations.fetch, []

    def explain(statement, params, planner=sql.PLANNER, **options):
        plans.extend(line for (line,) in fetch(f"EXPLAIN (ANALYZE, COSTS OFF) {statement}", params, planner))
        return []

    monkeypatch.setattr(operations, "fetch", explain)
    operations.record(ended(claims))
    monkeypatch.undo()
    scans = {found[1]: found[2] == "actual" for found in SCANS.finditer("\n".join(plans))}
    if "Bitmap Heap" in scans:
        scans["Index"] = scans.pop("Bitmap Heap")
    assert scans.keys() == {"Tid", "Index"}, "\n".join(plans)
    return scans


def test_claim_tells_the_place_of_its_row(claims):
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, ctid::text FROM testapp_step")
        assert {claim.pk: claim.place for claim in claims} == dict(cursor.fetchall())
    assert not any(name.startswith("_stator") for name in vars(claims[0].instance))


@pytest.mark.citus_lacks("plans that EXPLAIN shows as PostgreSQL does")
def test_index_of_the_key_is_not_read_for_rows_that_are_in_their_place(operations, claims, monkeypatch):
    assert reads(operations, claims, monkeypatch) == {"Tid": True, "Index": False}


@pytest.mark.citus_lacks("plans that EXPLAIN shows as PostgreSQL does")
def test_row_that_was_changed_since_is_found_by_its_key(operations, claims, monkeypatch):
    change(claims[1].instance, name="elsewhere now")
    assert reads(operations, claims, monkeypatch) == {"Tid": True, "Index": True}
    assert Step.objects.filter(state="done", state_version=1, state_claim=None).count() == 3


def moved_on(claims):
    for claim in claims:
        change(claim.instance, name="elsewhere now")


def forgotten(claims):
    claims[0].place = None


def mistaken(claims):
    claims[0].place, claims[1].place = claims[1].place, claims[0].place


def beyond_the_table(claims):
    claims[0].place = "(4000000,1)"


@pytest.mark.parametrize("happens", [moved_on, forgotten, mistaken, beyond_the_table])
def test_every_outcome_is_written_once_whatever_its_claim_knows(operations, claims, happens):
    happens(claims)
    written = operations.record(ended(claims))
    assert (len(written.moves), written.lost, written.deferred) == (3, [], [])
    assert [row(claim.instance).state_version for claim in claims] == [1, 1, 1]


def test_place_of_a_claim_that_has_ended_lets_nothing_be_written(operations, claims):
    lost = claims[1]
    Step.stator.filter(pk=lost.pk).unlock()
    written = operations.record(ended(claims))
    assert (len(written.moves), written.lost) == (2, [lost])
    assert row(lost.instance).state == "new"


@pytest.fixture
def partitioned():
    """The table in two parts, whose rows are in the same places."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('search_path'), current_schema()")
        path, schema = cursor.fetchone()
        cursor.execute("CREATE SCHEMA parted")
        cursor.execute(f"SET search_path TO parted, {path}")
        columns = f"LIKE {schema}.testapp_step INCLUDING DEFAULTS, PRIMARY KEY (id)"
        cursor.execute(f"CREATE TABLE testapp_step ({columns}) PARTITION BY HASH (id)")
        for part in range(2):
            cursor.execute(
                f"CREATE TABLE part{part} PARTITION OF testapp_step FOR VALUES WITH (MODULUS 2, REMAINDER {part})"
            )
        cursor.execute("INSERT INTO testapp_step (id, state, name) SELECT n, 'new', '' FROM generate_series(1, 20) n")
        cursor.execute("SELECT count(DISTINCT ctid) FROM testapp_step")
        assert cursor.fetchone()[0] < 20
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {path}")
        cursor.execute("DROP SCHEMA parted CASCADE")


@pytest.mark.citus_lacks("statement over two schemas")
def test_rows_of_other_partitions_in_the_same_places_are_left_alone(operations, partitioned):
    first = operations.claim(automatic(operations), 6)
    assert [claim.pk for claim in first] == [1, 2, 3, 4, 5, 6]
    assert Step.stator.leased().count() == 6
    second = operations.claim(automatic(operations), 6)
    assert [claim.pk for claim in second] == [7, 8, 9, 10, 11, 12]
    assert len(operations.record(ended(first)).moves) == 6
    assert list(Step.objects.filter(state="done").order_by("pk").values_list("pk", flat=True)) == [1, 2, 3, 4, 5, 6]
    assert Step.stator.leased().count() == 6
    assert len(operations.record(ended(second)).moves) == 6
    assert Step.objects.filter(state="new", state_claim=None).count() == 8
