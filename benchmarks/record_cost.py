"""What a record costs in Python: batches of 1 and 100 outcomes, with a database that answers at once.

``python -m benchmarks.record_cost [--records N]``: the statement is not sent, so this is the worker's own part of a
record. Compare it with another version by ``python -m benchmarks.beside REV record_cost``.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.harness import arguments, database, make_tables
from benchmarks.report import Spent, measure, show, watch

SIZES = (1, 100)
# Times as many rows in batches, which take less for each.
LONGER = 20


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, {"records": 200}, records=20_000)
    with database():
        from benchmarks.models import AsyncItem, KeptItem

        make_tables(AsyncItem, KeptItem)
        cases = {
            f"{name}, {size} {'row' if size == 1 else 'rows'}": _case(
                model, size, options.records if size == 1 else options.records * LONGER // size
            )
            for name, model in {"plain": AsyncItem, "with history": KeptItem}.items()
            for size in SIZES
        }
        measured = measure(cases, options.repeat)
        show("Records without a database, by rows", "rows", measured, {})


def _case(model: Any, size: int, times: int) -> tuple[int, Callable[[], Spent]]:
    """Return how many rows a case records, and the case."""
    from stator.commands.statements import _claim_of
    from stator.conf import load_settings
    from stator.db import operations_for
    from stator.db.interface import OutcomeBatch
    from stator.graph.outcomes import Moved

    operations: Any = operations_for(model, load_settings(), "0" * 12, "default")
    state = next(iter(operations.automatic))
    target = min(state.children, key=str)
    claims: list[Any] = []
    for number in range(1, size + 1):
        claim: Any = _claim_of(operations, state)
        claim.pk, claim.started, claim.finished = number, 1.0, 2.0
        claims.append((claim, Moved(target)))
    rows = [(number,) for number in range(1, size + 1)]
    operations.fetch = lambda *given, **options: rows

    def record() -> Spent:
        with watch() as spent:
            for _ in range(times):
                operations.record_batch(OutcomeBatch.of(claims))
        return spent

    # The statement is compiled once.
    operations.record_batch(OutcomeBatch.of(claims))
    return size * times, record


if __name__ == "__main__":
    main()
