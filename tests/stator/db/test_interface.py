"""How operations are composed: of which parts, and of whose; how outcomes are grouped."""

import pickle
from types import SimpleNamespace

from django.db import connection

from stator.capabilities import capabilities_of
from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import batches_of, new_token, new_worker_id
from stator.graph.outcomes import Moved, Waiting
from tests.testapp.basic import Step, StepGraph


def test_operations_are_pickled_with_their_parts():
    made = operations_for(Step, Settings(), new_worker_id())
    twin = pickle.loads(pickle.dumps(made))
    assert (twin.model, twin.alias, twin.worker_id) == (made.model, made.alias, made.worker_id)
    assert type(twin.transactions) is type(made.transactions)
    assert type(twin.transactions).__module__ == capabilities_of(connection).statements


FROM, TO = StepGraph.initial_state, next(iter(StepGraph.initial_state.children))


def ended(pk, outcome):
    operations = operations_for(Step, Settings(), new_worker_id())
    return SimpleNamespace(pk=pk, state=FROM, token=new_token(new_worker_id()), operations=operations, kept={}), outcome


def test_outcomes_of_one_row_are_never_in_one_part_and_the_latest_comes_first():
    # The lease of row 1 was lost twice, and each time the same worker claimed the row again.
    first, second, third = (ended(1, Waiting(delay)) for delay in (1.0, 2.0, 3.0))
    other, moved = ended(2, Waiting(1.0)), ended(1, Moved(TO))
    parts = [batch.ended for batch in batches_of([first, second, other, third, moved])]
    assert sorted(map(len, parts)) == [1, 1, 1, 2]
    of_row = [claim for part in parts for claim, outcome in part if claim.pk == 1 and isinstance(outcome, Waiting)]
    assert of_row == [third[0], second[0], first[0]]
    assert all(len({claim.pk for claim, _ in part}) == len(part) for part in parts)
