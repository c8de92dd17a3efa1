"""What a row tells about an outcome whose answer was lost."""

from types import SimpleNamespace

import pytest

from stator.db.claim import new_token, new_worker_id
from stator.db.written import is_written
from stator.outcomes import Moved, Released, Waiting
from tests.testapp.basic import StepGraph

TOKEN = new_token(new_worker_id())
FROM, TO = StepGraph.initial_state, next(iter(StepGraph.initial_state.children))
CLAIM = SimpleNamespace(state=FROM, version=3, attempt=2)


@pytest.mark.parametrize(
    ("outcome", "state", "version", "attempts", "token", "expected"),
    [
        (Moved(TO), TO, 4, 0, None, True),
        # The next state may have been claimed before anybody looks.
        (Moved(TO), TO, 4, 1, TOKEN, True),
        (Moved(TO), TO, 5, 0, None, False),
        (Moved(TO), FROM, 3, 2, TOKEN, False),
        (Waiting(1.0), FROM, 3, 2, None, True),
        (Waiting(1.0), FROM, 3, 3, TOKEN, False),
        (Waiting(1.0), FROM, 3, 3, None, False),
        (Released(), FROM, 3, 1, None, True),
        (Released(), FROM, 3, 2, TOKEN, False),
    ],
)
def test_outcome_is_found_written_in_the_row_it_left(outcome, state, version, attempts, token, expected):
    assert is_written(CLAIM, outcome, state.name, version, attempts, token) is expected
