"""Values of a batch of rows as arrays of PostgreSQL."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from stator.db.claim import Claim


def places_of(claims: list[Claim]) -> str:
    """Return the places (``ctid``) of the claims' rows as an array, with null where a place is not known."""
    places = ",".join([f'"{claim.place}"' if claim.place else "NULL" for claim in claims])
    return f"{{{places}}}"


def array_of(values: list[Any]) -> Any:
    """Return values of one type as an array; for numbers and UUIDs ten times as fast as psycopg."""
    kind = type(values[0])
    if kind is int:
        return f"{{{','.join(map(str, values))}}}"
    if kind is UUID:
        return f"{{{','.join(_hexes(values))}}}"
    return values


def _hexes(values: list[UUID]) -> Iterator[str]:
    # All rows of one claim share one token object, and formatting it is slow.
    last, written = values[0], values[0].hex
    for value in values:
        if value is not last:
            last, written = value, value.hex
        yield written
