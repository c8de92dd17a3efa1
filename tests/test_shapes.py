"""What Citus refuses in a statement, by its text; ``tests/citus/test_shapes.py`` asks Citus itself."""

import pytest

from tests.shapes import refused_in

# Statements on a table ``t`` with the columns ``at``, ``due`` and ``n``, and what Citus refuses in each.
STATEMENTS = [
    ("UPDATE t SET due = statement_timestamp()", None),
    ("UPDATE t SET n = CASE WHEN due > now() THEN 1 END", "the time in CASE"),
    ("UPDATE t SET n = CASE WHEN due > (SELECT now()) THEN 1 END", None),
    ("UPDATE t SET n = (SELECT CASE WHEN due > now() THEN 1 END)", None),
    ("UPDATE t SET n = 1 WHERE due < coalesce(at, now())", "the time in COALESCE"),
    ("DELETE FROM t WHERE due < now() AND coalesce(at, due) < now()", None),
    ("UPDATE t SET due = at + interval '1 second'", "a moment and a span of a column"),
    ("UPDATE t SET due = now() + interval '1 second'", None),
    ("UPDATE t SET due = now() + t.n * interval '1 second'", "a moment and a span of a column"),
    ("UPDATE t SET due = (SELECT now() + t.n * interval '1 second')", None),
    ("UPDATE t SET n = 1 WHERE random() < 0.5", "a volatile function"),
    ("UPDATE t SET n = 1 RETURNING n, now()", "the time in RETURNING"),
    ("WITH done AS (UPDATE t SET n = 1 RETURNING n) SELECT n, now() FROM done", None),
    (
        "WITH RECURSIVE turns AS (SELECT id FROM t UNION ALL SELECT id + 1 FROM turns WHERE id < 3),"
        " p AS (SELECT id FROM turns ORDER BY random()) UPDATE t SET n = 1 FROM p WHERE t.id = p.id",
        "a volatile function in WITH",
    ),
    ("WITH p AS (SELECT id FROM t FOR UPDATE SKIP LOCKED) UPDATE t SET n = 1 FROM p WHERE t.id = p.id", None),
    ("WITH done AS (UPDATE t SET n = 1 RETURNING n), b AS (UPDATE t SET n = 2 WHERE false) SELECT n FROM done", None),
    (
        "WITH p AS (SELECT id, ctid AS place FROM t FOR UPDATE),"
        " done AS (UPDATE t SET n = 1 FROM p WHERE t.ctid = p.place RETURNING n),"
        " b AS (INSERT INTO t (n) SELECT n FROM done) SELECT 1",
        "INSERT in WITH",
    ),
    ("INSERT INTO t (n) VALUES ((SELECT 1))", "a subquery in VALUES"),
    ("INSERT INTO t (due) VALUES (date_trunc('hour', now()))", None),
    ("ALTER TABLE t ADD COLUMN m integer NULL CHECK (m > 0)", "a column with a constraint"),
    ("ALTER TABLE t ADD COLUMN m integer", None),
]


@pytest.mark.parametrize(("statement", "refused"), STATEMENTS)
def test_refused_shape_is_named(statement: str, refused: str | None) -> None:
    assert refused_in(statement) == ([refused] if refused else [])
