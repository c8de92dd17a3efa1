"""Moves of objects for which others wait (``when_all``), beside the same moves for which nobody does.

``python -m benchmarks.related [--rows 60000] [--repeat 5]``
"""

from typing import Any

from benchmarks.harness import arguments, database, make_tables
from benchmarks.report import Spent, Target, measure, show, watch

PLAIN, ALL_OF_ONE = "nobody waits", "parts of one object"
HUNDRED, FOUR = "parts of many, 100 of each", "parts of many, 4 of each"

TARGETS = {
    ALL_OF_ONE: tuple(Target(1.05, of=PLAIN, figure=figure, most=True) for figure in ("own", "server")),
}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 400}, rows=60_000, repeat=5)
    with database():
        from benchmarks import models as m

        make_tables(m.Whole, m.PlainWhole, m.Part, m.PlainPart)
        rows = options.rows
        cases = {
            PLAIN: (rows, lambda: parts(m.PlainPart, rows, 1)),
            ALL_OF_ONE: (rows, lambda: parts(m.Part, rows, 1)),
            HUNDRED: (rows, lambda: parts(m.Part, rows, rows // 100)),
            FOUR: (rows, lambda: parts(m.Part, rows, rows // 4)),
        }
        show(f"Moves of {rows:,} parts, one process", "parts", measure(cases, options.repeat), TARGETS)


def parts(model: Any, rows: int, wholes: int) -> Spent:
    """Let a worker move all parts of some wholes, which follow if they wait for them."""
    from django.db import connection

    from stator.runner import StatorRunner

    whole = model._meta.get_field("whole").related_model
    with connection.cursor() as cursor:
        tables = [each._meta.db_table for each in (whole, model)]
        cursor.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY")
        cursor.execute(
            f"INSERT INTO {tables[0]} (state, state_ready) SELECT 'new', false FROM generate_series(1, %s)", [wholes]
        )
        cursor.execute(
            f"INSERT INTO {tables[1]} (state, payload, whole_id)"
            " SELECT 'new', 'x', 1 + (n - 1) * %s / %s FROM generate_series(1, %s) n",
            [wholes, rows, rows],
        )
        for table in tables:
            cursor.execute(f"VACUUM (ANALYZE) {table}")
    with watch() as spent:
        StatorRunner([model], until_idle=True).run()
    left = model.stator.exclude(state="done").count()
    behind = whole.stator.exclude(state="done").count() if whole.__name__ == "Whole" else 0
    if left or behind:
        raise SystemExit(f"{left} of {rows} parts and {behind} of {wholes} wholes were not moved")
    return spent


if __name__ == "__main__":
    main()
