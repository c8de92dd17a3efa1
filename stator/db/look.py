"""One look for work: a statement that asks for several models at once whether there is anything to do."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stator.db.base import Operations


@dataclass(frozen=True, slots=True)
class Work:
    """What a model has to do: rows to claim, rows to claim alone, rows to mark ready, leases that ran out."""

    ready: bool = False
    suspect: bool = False
    due: bool = False
    expired: bool = False


def look(*group: Operations) -> dict[Operations, Work]:
    """What each model has to do at this moment; all operations are of one database."""
    statement, params = _statement(group)
    found = iter(group[0].fetch(statement, list(params))[0])
    return {operations: Work(*(bool(next(found)) for _ in range(4))) for operations in group}


@lru_cache(maxsize=16)
def _statement(group: tuple[Operations, ...]) -> tuple[str, tuple[Any, ...]]:
    """The statement and its parameters; the only moment it asks for is the database's own, so it stays the same."""
    parts: list[str] = []
    params: list[Any] = []
    for operations in group:
        for probe in operations.probes():
            query = probe.order_by().values("pk")[:1].query
            # Django knows some of the questions about a graph that nothing attempts to be empty.
            sql, arguments = query.get_compiler(using=operations.alias, elide_empty=False).as_sql()
            parts.append(f"EXISTS ({sql})")
            params.extend(arguments)
    return f"SELECT {', '.join(parts)}", tuple(params)
