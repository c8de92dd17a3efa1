"""Writes to the table of a model in shadow, by the server's own counters: workers look on, old code moves some rows.

``python -m benchmarks.shadow [--rows 1000000] [--moved 20000]``: every row is due, which is the worst case, and workers
record what they would do until each row has its line. Then old code moves some rows by a plain UPDATE. The counters of
``pg_stat_user_tables`` must show no row written by workers, and each moved row written once.
"""

import os
import time
from dataclasses import asdict, dataclass

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from django.db import connection

from benchmarks.harness import arguments, database, fill, make_tables, print_table
from benchmarks.report import print_targets, verdict

COUNTERS = ("n_tup_ins", "n_tup_upd", "n_tup_hot_upd", "n_tup_del")

# PostgreSQL's processes pass their counts on once a second, and when they are idle.
FLUSHED = 1.5


@dataclass(frozen=True, slots=True)
class Step:
    """What one step took, and what it wrote to the table."""

    name: str
    seconds: float
    lines: int
    inserted: int
    updated: int
    hot: int
    deleted: int

    @property
    def written(self) -> int:
        """The number of rows that were written."""
        return self.inserted + self.updated + self.deleted


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 2000, "moved": 100}, repeat=1, rows=1_000_000, moved=20_000)
    with database():
        from django.core.management import call_command

        from benchmarks.shadowed import ShadowedItem

        call_command("migrate", verbosity=0)
        make_tables(ShadowedItem)
        fill(ShadowedItem, options.rows)
        quiet = step("workers look on", lambda: look_on(options.rows))
        sweep = step("old code moves some", lambda: move(options.moved))
        after = step("workers see that", lambda: see(options.moved))
        steps = [quiet, sweep, after]
        lines = [
            [each.name, f"{each.seconds:.1f}", *(f"{n:,}" for n in [*asdict(each).values()][2:])] for each in steps
        ]
        head = ["step", "seconds", "lines written", *COUNTERS]
        print_table(f"Writes to a table in shadow, {options.rows:,} rows due", head, lines)
        by_workers = quiet.written + after.written
        print_targets([
            verdict("rows of the table that workers wrote", by_workers, 0, most=True),
            verdict("rows that old code wrote more often than once", sweep.written - options.moved, 0, most=True),
        ])  # fmt: skip


def step(name: str, act: object) -> Step:
    """Do it, and return what it wrote."""
    from stator.models import ShadowLine

    before, lines, began = counted(), ShadowLine.objects.count(), time.perf_counter()
    act()  # type: ignore[operator]
    seconds = time.perf_counter() - began
    found = [now - then for now, then in zip(counted(), before, strict=True)]
    return Step(name, seconds, ShadowLine.objects.count() - lines, *found)


def counted() -> list[int]:
    """Return the server's counters of the table."""
    from benchmarks.shadowed import ShadowedItem

    connection.close()
    time.sleep(FLUSHED)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(COUNTERS)} FROM pg_stat_user_tables WHERE relname = %s",
            [ShadowedItem._meta.db_table],
        )
        return list(cursor.fetchone())


def look_on(rows: int) -> None:
    """Run workers until each row has a line."""
    from benchmarks.shadowed import ShadowedItem
    from stator.models import ShadowLine
    from stator.runner import StatorRunner

    while ShadowLine.objects.count() < rows:
        StatorRunner([ShadowedItem], until_idle=True).run()


def move(rows: int) -> None:
    """Do what the project's own code does."""
    from benchmarks.shadowed import ShadowedItem

    ShadowedItem._base_manager.filter(pk__lte=rows).update(state="done")


def see(rows: int) -> None:
    """Run workers until the lines of the moved rows are closed."""
    from benchmarks.shadowed import ShadowedItem
    from stator.models import ShadowLine
    from stator.runner import StatorRunner

    while ShadowLine.objects.exclude(ended=0).count() < rows:
        StatorRunner([ShadowedItem], until_idle=True).run()


if __name__ == "__main__":
    main()
