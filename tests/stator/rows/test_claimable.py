"""The condition of a claim is the same as a filter and as text: both match the same rows, in every combination."""

from itertools import product

import pytest
from django.db import connection

from stator.conf import Settings
from stator.db.interface import new_token, new_worker_id
from stator.rows.claimable import READY, RESTING, Crashes, claimable, claimable_sql
from stator.rows.state_column import state_field
from stator.statements import written
from tests.stator.making import raw
from tests.testapp.basic import Step, StepGraph

pytestmark = pytest.mark.django_db

SETTINGS = Settings(MAX_CRASHES=4)
STATES = [state.name for state in StepGraph.automatic_states]


@pytest.fixture
def combinations():
    """A row for each combination of what a claim asks about."""
    tokens, states = (None, new_token(new_worker_id())), (*STATES, "done", "newer")
    for ready, token, state in product((True, False), tokens, states):
        raw(Step).bulk_create(Step(name="new") for _ in range(6))
        made = raw(Step).filter(name="new")
        for crashes, pk in enumerate(made.values_list("pk", flat=True)):
            raw(Step).filter(pk=pk).update(state_crashes=crashes)
        made.update(name="", state=state, state_ready=ready, state_claim=token)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="the text is for postgresql only")
@pytest.mark.parametrize("crashes", Crashes)
def test_text_of_the_condition_matches_the_rows_of_the_filter(combinations, crashes):
    lowest, too_high = crashes.bounds(SETTINGS)
    statement = written(f"SELECT id FROM testapp_step WHERE {claimable_sql(crashes)}", column="state")
    with connection.cursor() as cursor:
        values = {"states": STATES, "lowest": lowest, "too_high": too_high}
        cursor.execute(statement.text, statement.bind(connection, values))
        by_text = {pk for (pk,) in cursor.fetchall()}
    by_filter = raw(Step).filter(claimable(state_field(Step), STATES, SETTINGS), crashes.matches(SETTINGS))
    assert by_text == set(by_filter.values_list("pk", flat=True))
    assert by_text


def test_each_row_that_is_not_quarantined_is_in_one_kind_of_claim(combinations):
    ready = raw(Step).filter(claimable(state_field(Step), STATES, SETTINGS))
    kinds = [set(ready.filter(each.matches(SETTINGS)).values_list("pk", flat=True)) for each in Crashes]
    assert sum(map(len, kinds)) == len(set.union(*kinds)) == ready.count()


def test_row_that_nobody_holds_is_either_ready_or_resting(combinations):
    ready, resting = (set(raw(Step).filter(each).values_list("pk", flat=True)) for each in (READY, RESTING))
    assert not ready & resting
    assert ready | resting == set(raw(Step).filter(state_claim=None).values_list("pk", flat=True))
