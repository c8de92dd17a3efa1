"""The time of a durable step, beside a bare INSERT of the same row.

``python -m benchmarks.steps [--steps 1000] [--repeat 7] [--engine postgresql]``
"""

import argparse
from typing import Any

from benchmarks.harness import arguments, database, make_tables
from benchmarks.report import Spent, Target, measure, show, watch

RESULT = {"receipt": "r-1234567", "amount": 1299, "currency": "EUR"}
# Steps of one attempt: the first one also reads what is recorded.
PER_ATTEMPT = 10


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, {"steps": 50}, with_engine, steps=1000, repeat=7)
    with database(options.engine):
        from django.db.models import QuerySet

        from benchmarks.models import SyncItem
        from stator.conf import Settings
        from stator.db import operations_for
        from stator.db.interface import new_worker_id

        make_tables(SyncItem)
        rows: Any = QuerySet(SyncItem)
        operations = operations_for(SyncItem, Settings(LEASE=3600), new_worker_id(), "default")
        rows.bulk_create([SyncItem() for _ in range(options.steps)])
        claims = operations.claim(list(operations.graph.automatic_states), options.steps)
        bare, step = "bare INSERT", "step"
        cases = {
            bare: (options.steps, lambda: insert(claims)),
            step: (options.steps, lambda: steps(claims)),
        }
        for _, run in cases.values():
            run()
        targets = {step: (Target(1.2, of=bare, most=True, figure="cost"),)}
        show("Recording steps, one process, a commit each", "steps", measure(cases, options.repeat), targets)


def with_engine(parser: argparse.ArgumentParser) -> None:
    """Add the option for the database."""
    parser.add_argument("--engine", choices=("postgresql", "sqlite", "mariadb"), default="postgresql")


def insert(claims: list[Any]) -> Spent:
    """Insert the row of a step for each claim, all values given, by a cursor."""
    from django.db import connection
    from django.utils import timezone

    from stator.extensions.steps.attempt import COLUMNS
    from stator.extensions.steps.models import Step

    clear()
    fields: list[Any] = [Step._meta.get_field(name) for name in COLUMNS]
    text = f"INSERT INTO stator_step ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
    with watch() as spent:
        for number in range(len(claims)):
            claim = claims[number // PER_ATTEMPT]
            # A version to compare with may have no lives.
            of_life = (claim.life.number, claim.life.visit) if "life" in COLUMNS else ()
            values = (
                claim.operations.label, str(claim.pk), claim.instance.state_changed, f"step {number}", "fresh",
                '{"receipt": "r-1234567", "amount": 1299, "currency": "EUR"}', timezone.now(), 1, claim.token,
                *of_life,
            )  # fmt: skip
            given = [field.get_db_prep_save(value, connection) for field, value in zip(fields, values, strict=True)]
            with connection.cursor() as cursor:
                cursor.execute(text, given)
    check(len(claims))
    return spent


def steps(claims: list[Any]) -> Spent:
    """Do as many steps, several in each attempt."""
    clear()
    for claim in claims:
        claim.kept.clear()
    with watch() as spent:
        for number in range(len(claims)):
            claims[number // PER_ATTEMPT].step(f"step {number}", RESULT.copy)
    check(len(claims))
    return spent


def clear() -> None:
    """Empty the table of steps."""
    from stator.extensions.steps.models import Step

    Step.objects.all().delete()


def check(count: int) -> None:
    """Check that all steps are recorded."""
    from stator.extensions.steps.models import Step

    if Step.objects.count() != count:
        raise SystemExit(f"{Step.objects.count()} of {count} steps were recorded")


if __name__ == "__main__":
    main()
