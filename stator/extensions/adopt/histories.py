"""Transitions that a project has recorded: tables of versions, of changes, and logs in JSON, found by their columns.

The latest rows of each table are read, up to a number. Which tables were used is part of the answer.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.db.models import Field, ForeignKey, Model, QuerySet

from stator.db.looks import bounded
from stator.db.retry import is_cut_short
from stator.extensions.adopt.target import Stored, Target

# Models that keep what rows were, rather than what belongs to them.
KEEPS = re.compile(r"(?i)histor|log|audit|version|revision|event|transition|change|journal|trail")
BEFORE = ("from_{}", "old_{}", "previous_{}", "prev_{}", "source_{}")
AFTER = ("to_{}", "new_{}", "target_{}", "{}")
# Names of keys of any model's rows, in a table for all models.
OBJECTS = ("object_id", "object_pk")

Pair = tuple[Stored, Stored]
# The key of a row, and one value of it; or a change of it.
Version = tuple[object, Stored]


@dataclass(frozen=True)
class HistoryLook:
    """A table of which ``rows`` were read, with how often each change of the value was found in them.

    ``how``: what was compared. ``whole``: whether these are all rows. ``trouble``: why it could not be read.
    """

    label: str
    how: str
    rows: int
    whole: bool
    moves: dict[Pair, int]
    trouble: str = ""


@dataclass(frozen=True)
class _Table:
    """What is read of a model: ``columns``, of ``rows``; ``how`` says what becomes of it."""

    rows: QuerySet[Model]
    columns: tuple[str, ...]
    how: str


def look_at_histories(target: Target, using: str, *, most: int, seconds: float) -> list[HistoryLook]:
    """Return the changes of the column that other tables of the project have recorded."""
    others = [model for model in apps.get_models(include_auto_created=True) if model is not target.model]
    tables = filter(None, (_table(target, model, using) for model in others))
    return [_read(target, table, using, most, seconds) for table in tables]


def _table(target: Target, model: type[Model], using: str) -> _Table | None:
    fields = {field.name: field for field in model._meta.concrete_fields}
    rows: QuerySet[Model] = QuerySet(model, using=using).order_by("-pk")
    key = _key(target, model, fields)
    if key is None:
        return None
    if "content_type" in fields and key in OBJECTS:
        rows = rows.filter(content_type__app_label=target.model._meta.app_label)
        rows = rows.filter(content_type__model=target.model._meta.model_name)
    column = target.column
    before = next((name.format(column) for name in BEFORE if name.format(column) in fields), None)
    before = before or ("source_state" if {"source_state", "state", "transition"} <= {*fields} else None)
    after = next((name.format(column) for name in AFTER if name.format(column) in fields), None)
    if before and (after or before == "source_state"):
        return _Table(rows, (before, after or "state"), f"{before} and {after or 'state'}")
    if "changes" in fields:
        return _Table(rows, (key, "changes"), "changes in JSON")
    if "serialized_data" in fields:
        return _Table(rows, (key, "serialized_data"), "versions in JSON")
    if column in fields and (KEEPS.search(model.__name__) or "history_date" in fields):
        return _Table(rows, (key, column), f"versions of each {target.model.__name__}, in the order of their keys")
    return None


def _key(target: Target, model: type[Model], fields: dict[str, Field]) -> str | None:
    """Return the column of another table that has the key of a row: a relation, a number, or the former key."""
    for field in fields.values():
        if isinstance(field, ForeignKey) and field.related_model is target.model:
            return str(field.attname)
    own = target.model._meta.pk.name
    columns = {field.name for field in target.model._meta.concrete_fields}
    if "history_date" in fields and columns <= {*fields} and not fields[own].primary_key:
        return str(own)
    return next((name for name in OBJECTS if name in fields and "content_type" in fields), None)


def _read(target: Target, table: _Table, using: str, most: int, seconds: float) -> HistoryLook:
    label = str(table.rows.model._meta.label)
    try:
        with bounded(using, lock=seconds, most=seconds):
            read = list(table.rows.values_list(*table.columns)[: most + 1])
    except DatabaseError as error:
        # Its table may be in another database, or closed to this role; the report goes on without it.
        why = f" in {seconds:g} s" if is_cut_short(error) else f": {str(error).partition(chr(10))[0]}"
        return HistoryLook(label, table.how, 0, False, {}, f"it could not be read{why}")
    whole, read = len(read) <= most, read[:most]
    _, second = table.columns
    if second == "changes":
        pairs = _changes(target, read)
    elif second == "serialized_data":
        pairs = _moves((key, value) for key, text in read for value in _serialized(target, text))
    elif table.columns[0].startswith(tuple(name.format("") for name in BEFORE)):
        pairs = Counter((_value(target, old), _value(target, new)) for old, new in read if old != new)
    else:
        pairs = _moves(read)
    return HistoryLook(label, table.how, len(read), whole, dict(pairs.most_common()))


def _moves(versions: Iterable[Version]) -> Counter[Pair]:
    """Count the changes between neighbouring versions of a row; the latest version comes first."""
    later: dict[object, Stored] = {}
    moves: Counter[Pair] = Counter()
    for key, value in versions:
        if key in later and later[key] != value:
            moves[value, later[key]] += 1
        later[key] = value
    return moves


def _changes(target: Target, read: Iterable[tuple[object, object]]) -> Counter[Pair]:
    moves: Counter[Pair] = Counter()
    for _, given in read:
        change = _json(given)
        pair = change.get(target.column) if isinstance(change, dict) else None
        if isinstance(pair, list) and len(pair) == 2:
            old, new = (_value(target, each) for each in pair)
            # The log of a new row has no value before it.
            if old is not None:
                moves[old, new] += 1
    return moves


def _serialized(target: Target, text: object) -> Iterator[Stored]:
    parsed = _json(text)
    for one in parsed if isinstance(parsed, list) else []:
        fields = one.get("fields") if isinstance(one, dict) else None
        if isinstance(fields, dict) and target.column in fields:
            yield _value(target, fields[target.column])


def _json(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None


def _value(target: Target, given: object) -> Stored:
    """Return a value as the column has it: logs have the text of a number, and those in JSON that of nothing."""
    if given in (None, "None"):
        return None
    try:
        value: Stored = target.field.to_python(given)
    except ValidationError:
        return str(given)
    return value
