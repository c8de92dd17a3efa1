"""A node of the cluster that is away for a while; runs if ``CITUS_NODE_STOP`` and ``CITUS_NODE_START`` are commands."""

import os
import shlex
import subprocess
from collections import Counter
from time import monotonic
from typing import Any

import pytest
from django.db import connections

from tests.citus.conftest import NAME, NODES, MakeDatabase, address_of, over_the_nodes
from tests.processes import WorkerProcess, wait_until
from tests.sizes import size
from tests.stator.making import ago, raw
from tests.testapp.spreading import Remark, Sheet

STOP, START = (shlex.split(os.environ.get(f"CITUS_NODE_{name}", "")) for name in ("STOP", "START"))
# Which of the values have their rows on the node that is stopped, which is the first one of ``CITUS_NODES``.
PLACES = """
SELECT value, nodeport = %s FROM generate_series(0, 31) value
JOIN citus_shards ON shardid = get_shard_id_for_distribution_column(%s, value::{kind})
"""

pytestmark = [
    pytest.mark.citus,
    pytest.mark.django_db(databases=[]),
    pytest.mark.skipif(not (STOP and START), reason="CITUS_NODE_STOP or CITUS_NODE_START is not set"),
]


@pytest.mark.parametrize(("model", "column", "kind"), [(Sheet, "shard", "smallint"), (Remark, "author", "text")])
def test_objects_on_other_nodes_go_on_and_those_of_the_node_resume(
    make_database: MakeDatabase, settings: Any, model: Any, column: str, kind: str
) -> None:
    # Polls alone find them.
    settings.STATOR = {**settings.STATOR, "NOTIFY": False}
    alias = over_the_nodes(make_database, **{model.__name__: column})
    with connections[alias].cursor() as cursor:
        cursor.execute(PLACES.format(kind=kind), [address_of(NODES[0])[1], model._meta.db_table])
        away = {value for value, is_away in cursor.fetchall() if is_away}
    there = set(range(32)) - away
    assert away
    assert there
    rows = model.objects.using(alias)

    def add(values: set[int]) -> None:
        """Add two objects of each value: one that is ready, and one that comes due."""
        rows.bulk_create([model(**{column: value}) for value in values])
        rows.bulk_create([model(**{column: value}, state_next_attempt=ago(-1)) for value in values])

    def done(values: set[int]) -> int:
        return rows.filter(**{f"{column}__in": values}, state="done").count()

    add(away | there)
    with WorkerProcess(model._meta.label, "--run-for", "600", TEST_DATABASE_DEFAULT=NAME) as worker:
        wait_until(lambda: done(away | there) == 64, message=worker.output)
        add(away)
        subprocess.run(STOP, check=True)
        back, rounds = monotonic() + size(60, 0), 1
        try:
            while rounds == 1 or monotonic() < back:
                add(there)
                rounds += 1
                wait_until(lambda rounds=rounds: done(there) == 2 * rounds * len(there), message=worker.output)
        finally:
            subprocess.run(START, check=True)
        wait_until(lambda: done(away) == 4 * len(away), message=worker.output)
    moves = Counter(raw(model, alias).values_list("state", "state_version"))
    assert moves == {("done", 1): rows.count()}
