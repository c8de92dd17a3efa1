"""The time to create an object, and to save one, beside the same model without the framework.

``python -m benchmarks.create [--objects 2000] [--repeat 5]``
"""

from collections.abc import Callable
from typing import Any

from benchmarks.harness import arguments, database, make_tables
from benchmarks.report import Spent, Target, measure, show, watch

WAYS = ("a commit each", "one commit", "bulk_create")


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"objects": 200}, objects=2000, repeat=5)
    with database():
        from benchmarks.models import AsyncItem, PlainItem

        make_tables(AsyncItem, PlainItem)
        create(PlainItem, 10, WAYS[0])
        create(AsyncItem, 10, WAYS[0])
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {}
        targets = {}
        for way in WAYS:
            plain, managed = f"{way}, plain model", f"{way}, managed model"
            # A bulk insert takes a hundredth of the time, which is too short to measure with the same count.
            count = options.objects * (10 if way == "bulk_create" else 1)
            cases[plain] = (count, lambda count=count, way=way: create(PlainItem, count, way))  # type: ignore[misc]
            cases[managed] = (count, lambda count=count, way=way: create(AsyncItem, count, way))  # type: ignore[misc]
            targets[managed] = (Target(1.15, of=plain, most=True, figure="cost"),)
        for name, model in (("a save each, plain model", PlainItem), ("a save each, managed model", AsyncItem)):
            cases[name] = (options.objects, lambda model=model: save(model, options.objects))  # type: ignore[misc]
        show("Creating and saving objects, one process", "objects", measure(cases, options.repeat), targets)


def create(model: Any, count: int, way: str) -> Spent:
    """Create ``count`` objects in one of the ways, in an empty table."""
    from django.db import transaction

    clear(model)
    with watch() as spent:
        if way == "bulk_create":
            model.objects.bulk_create([model() for _ in range(count)], batch_size=1000)
        elif way == "one commit":
            with transaction.atomic():
                one_by_one(model, count)
        else:
            one_by_one(model, count)
    if model._base_manager.count() != count:
        raise SystemExit(f"{model._base_manager.count()} of {count} objects were created")
    return spent


def save(model: Any, count: int) -> Spent:
    """Save one field of each of ``count`` unclaimed objects, with a commit each."""
    clear(model)
    model.objects.bulk_create([model() for _ in range(count)], batch_size=1000)
    objects = list(model.objects.all())
    with watch() as spent:
        for each in objects:
            each.payload = "y"
            each.save(update_fields=["payload"])
    if model.objects.filter(payload="y").count() != count:
        raise SystemExit("not all objects were saved")
    return spent


def clear(model: Any) -> None:
    """Empty the table."""
    from django.db import connection

    with connection.cursor() as cursor:
        truncate = "TRUNCATE {}" if connection.vendor == "postgresql" else "DELETE FROM {}"
        cursor.execute(truncate.format(model._meta.db_table))


def one_by_one(model: Any, count: int) -> None:
    """Create in a loop."""
    for _ in range(count):
        model.objects.create()


if __name__ == "__main__":
    main()
