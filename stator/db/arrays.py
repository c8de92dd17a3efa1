"""How what belongs to the rows of a batch is written as arrays of PostgreSQL."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from stator.db.claim import Claim


def places_of(claims: list[Claim]) -> str:
    """Where the claims have put their rows, as an array with null for those that do not know it."""
    places = ",".join([f'"{claim.place}"' if claim.place else "NULL" for claim in claims])
    return f"{{{places}}}"


def array_of(values: list[Any]) -> Any:
    """Values of one type as an array; psycopg takes ten times as long to write one of numbers or UUIDs."""
    kind = type(values[0])
    if kind is int:
        return f"{{{','.join(map(str, values))}}}"
    if kind is UUID:
        return f"{{{','.join(_hexes(values))}}}"
    return values


def _hexes(values: list[UUID]) -> Iterator[str]:
    # Those of one claim are one and the same object, and it takes long to write.
    last, written = values[0], values[0].hex
    for value in values:
        if value is not last:
            last, written = value, value.hex
        yield written
