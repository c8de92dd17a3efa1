"""The column of ``spread``, by whose values the rows of a model are divided into slices."""

import random
import zlib
from collections.abc import Sequence
from time import monotonic
from typing import Any

from django.db import models
from django.db.models import CharField, Field, IntegerField, Model, UUIDField

from stator.rows.keys import value_field
from stator.rows.meta import field_of, options_of
from stator.rows.state_column import AsDjangoField

# The values of a ``SpreadField``: as many as a large table needs parts on one machine or on several.
SPREAD = range(32)


class SpreadField(AsDjangoField, models.SmallIntegerField):
    """Which of the parts of ``SPREAD`` a row is in, for as long as it lives.

    A key that Python knows decides, so that two rows with one key are in one part, where the database refuses the
    second. Other new rows are in any part, those that are made together mostly in the same. With a ``default``, whoever
    makes the rows decides.

    ``in_one_line``: the rows of all parts are in one order, and each statement is for all parts.
    """

    def __init__(self, *, in_one_line: bool = False, **kwargs: Any) -> None:
        self.in_one_line = in_one_line
        super().__init__(**{"default": None} | kwargs | {"blank": True, "editable": False, "db_default": 0})

    def deconstruct(self) -> tuple[str, str, Sequence[object], dict[str, object]]:
        name, path, args, kwargs = super().deconstruct()
        # Rows that exist already are in the first part.
        kwargs.pop("default", None)
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        if super().pre_save(model_instance, add) is None:
            value = BURST.part() if model_instance.pk is None else part_of(model_instance.pk)
            setattr(model_instance, self.attname, value)
        return getattr(model_instance, self.attname)


class Burst:
    """The part for new rows that the database numbers: any one, for as many rows as a claim takes or for a second.

    So a transaction with few rows, their claim and their record are for one part, which may be on a node of its own.
    """

    ROWS, SECONDS = 100, 1.0

    def __init__(self) -> None:
        self._part, self._left, self._ends = 0, 0, 0.0

    def part(self) -> int:
        """Return the part of the next row."""
        now = monotonic()
        # Threads may take it below zero.
        if self._left <= 0 or now >= self._ends:
            self._part, self._left, self._ends = random.choice(SPREAD), self.ROWS, now + self.SECONDS
        self._left -= 1
        return self._part


BURST = Burst()


def part_of(key: object) -> int:
    """Return the part of a row: the same one for equal keys, any for None."""
    return random.choice(SPREAD) if key is None else SPREAD[zlib.crc32(str(key).encode()) % len(SPREAD)]


def spread_field(model: type[Model]) -> Field | None:
    """Return the field of ``spread``; None if the model has none."""
    name = options_of(model).spread
    return field_of(model, name) if name else None


def is_in_one_line(spread: Field) -> bool:
    """Return whether claims take rows with all values of a field of ``spread`` together; see ``SpreadField``."""
    return getattr(spread, "in_one_line", False)


def wrong_spread(field: Field) -> str:
    """Return what is wrong with a field to spread a table by; "" if nothing is."""
    if field.primary_key:
        return "is the primary key, so each value would have one row"
    if field.null:
        return "may be null, and a row without a value would be in no slice"
    target = value_field(field)
    if not isinstance(target, IntegerField | UUIDField | CharField) or hasattr(target, "from_db_value"):
        return f"is a {type(target).__name__}; it must be an integer, a UUID or a CharField, or refer to such a key"
    return ""
