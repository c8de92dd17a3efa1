"""A part of an index: the rows from a watermark on, which is a time, or those before it."""

from typing import Literal

from django.db.models import DateTimeField, Expression, F, Model, QuerySet

from stator.statements import Parameter

# From the watermark on, or before it.
Side = Literal["gte", "lt"]

# The value of a statement that says where the watermark is.
SINCE = "since"


def on_side(rows: QuerySet[Model], moment: Expression | F, side: Side) -> QuerySet[Model]:
    """Return the rows whose ``moment``, by which an index orders them, is on one side of the watermark."""
    watermark = Parameter(SINCE, DateTimeField())
    return rows.alias(stator_moment=moment).filter(**{f"stator_moment__{side}": watermark})
