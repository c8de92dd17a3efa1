"""A node of the cluster that is away for a while, or hangs; it has to be on this machine.

It is stopped by the commands ``CITUS_NODE_STOP`` and ``CITUS_NODE_START``, and hangs by signals.
"""

import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import connections

from stator.extensions.problems.commands.doctor import examine
from stator.extensions.problems.survey import problems, surveys
from tests.citus.conftest import NAME, NODES, MakeDatabase, address_of, over_the_nodes
from tests.processes import WorkerProcess, wait_until
from tests.sizes import CROWDED, size
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
    pytest.mark.skipif(not NODES, reason="CITUS_NODES has no node"),
]


def places(alias: str, model: Any, kind: str) -> tuple[set[int], set[int]]:
    """Return the values whose rows are on the first node, and the others."""
    with connections[alias].cursor() as cursor:
        cursor.execute(PLACES.format(kind=kind), [address_of(NODES[0])[1], model._meta.db_table])
        found = dict(cursor.fetchall())
    away = {value for value, is_away in found.items() if is_away}
    there = found.keys() - away
    assert away
    assert there
    return away, there


@contextmanager
def frozen() -> Iterator[None]:
    """Stop all processes of the first node as they stand; it keeps its connections."""
    with psycopg.connect(NODES[0], autocommit=True) as node:
        [(written,)] = node.execute("SELECT pg_read_file('postmaster.pid')").fetchall()
    server = int(written.split()[0])
    stopped: list[int] = []
    try:
        # The server first, so that it starts no further one.
        for pid in [server, *children_of(server)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in stopped:
            # A backend that had just begun to end has done so.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def children_of(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
            yield int(path.parent.name)


@pytest.mark.skipif(not (STOP and START), reason="CITUS_NODE_STOP or CITUS_NODE_START is not set")
@pytest.mark.parametrize(("model", "column", "kind"), [(Sheet, "shard", "smallint"), (Remark, "author", "text")])
def test_objects_on_other_nodes_go_on_and_those_of_the_node_resume(
    make_database: MakeDatabase, settings: Any, model: Any, column: str, kind: str
) -> None:
    # Polls alone find them.
    settings.STATOR = {**settings.STATOR, "NOTIFY": False}
    alias = over_the_nodes(make_database, **{model.__name__: column})
    away, there = places(alias, model, kind)
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


def test_objects_on_other_nodes_go_on_while_a_node_hangs(make_database: MakeDatabase, settings: Any) -> None:
    settings.STATOR = {**settings.STATOR, "NOTIFY": False}
    alias = over_the_nodes(make_database, Sheet="shard")
    away, there = places(alias, Sheet, "smallint")
    rows = Sheet.objects.using(alias)

    def add(values: set[int], count: int) -> None:
        rows.bulk_create([Sheet(shard=value) for value in values for _ in range(count)])

    def done(values: set[int]) -> int:
        return rows.filter(shard__in=values, state="done").count()

    def done_there() -> int:
        # No statement over all values, since one node does not answer.
        return sum(rows.filter(shard=value, state="done").count() for value in there)

    add(away | there, 1)
    with WorkerProcess(Sheet._meta.label, "--run-for", "600", TEST_DATABASE_DEFAULT=NAME) as worker:
        wait_until(lambda: done(away | there) == 32, message=worker.output)
        # Some of them are claimed when the node stops.
        add(away | there, 5)
        with frozen():
            began, rounds, took = monotonic(), 0, list[float]()
            while rounds < 2 or monotonic() < began + size(44, 12):
                since = monotonic()
                for value in there:
                    rows.bulk_create([Sheet(shard=value)])
                rounds += 1
                expected = (6 + rounds) * len(there)
                wait_until(lambda expected=expected: done_there() == expected, message=worker.output)
                took.append(monotonic() - since)
            [node] = [one for one in examine(alias, [Sheet]) if one.code == "nodes"]
            name = ":".join(map(str, address_of(NODES[0])))
            assert node.sentence == f"node {name} does not answer the coordinator"
            assert any(f"node {name} does not answer" in one.sentence for one in problems(surveys([Sheet], alias)))
        wait_until(lambda: done(away) == 6 * len(away), message=worker.output)
    moves = Counter(raw(Sheet, alias).values_list("state", "state_version"))
    assert moves == {("done", 1): rows.count()}
    assert took[0] < 7 + CROWDED, took
    assert max(took[1:]) < 2 + CROWDED, took
