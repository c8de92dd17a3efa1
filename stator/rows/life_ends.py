"""The end of lives: what is in force beside rows goes when Django deletes them, in the same transaction.

What that is, the table of record tables says, to which each extension adds its own. History and actions stay. What raw
SQL leaves is of no later life, see :mod:`stator.rows.life`, and is pruned in time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

from django.db import connections, models, transaction
from django.db.models import CharField, F, Model, Q, QuerySet
from django.db.models.deletion import Collector

from stator.rows.clock import seconds_ahead
from stator.rows.keys import key_text, keys_in
from stator.rows.life import LIFE
from stator.rows.record_tables import RECORD_TABLES, Keys, RecordTable
from stator.scopes import are_apart
from stator.statements import Parameter, Statement, StatementCache, existing, fetch_all, joined

# Up to so many rows, their records are looked for by their keys; else those of all rows of the model are.
FEW = 100
# Keys per statement.
PART = 1000

_statements: StatementCache[Statement] = StatementCache()


def end_lives_with_deletes() -> None:
    """Have each delete by Django end the lives of the managed rows that it deletes, cascades included.

    The collector is the one place that all deletes pass. A signal, or a relation as of Django's content types, would
    make it load all rows of a queryset that it can delete by one statement.
    """
    plain = Collector.delete
    if hasattr(plain, "ends_lives"):
        return

    @wraps(plain)
    def delete(self: Collector) -> tuple[int, dict[str, int]]:
        using = self.using
        ended = [
            (owner, keys, tables) for owner, keys in _deleted(self) if (tables := _with_records(owner, using, keys))
        ]
        if not ended:
            return plain(self)
        with transaction.atomic(using=using, savepoint=False):
            for owner, keys, tables in ended:
                if isinstance(keys, QuerySet):
                    _forget(owner, using, keys, tables)
            deleted = plain(self)
            # Afterwards, for rows with known keys: an attempt that holds its row records nothing from now on.
            for owner, keys, tables in ended:
                if not isinstance(keys, QuerySet):
                    _forget(owner, using, keys, tables)
        return deleted

    delete.ends_lives = True  # type: ignore[attr-defined]
    Collector.delete = delete  # type: ignore[method-assign]


def _deleted(collector: Any) -> Iterator[tuple[type[Model], Keys]]:
    """Yield the keys of the rows of managed models that are about to be deleted."""
    known: dict[type[Model], list[str]] = defaultdict(list)
    for model, instances in collector.data.items():
        if _is_owner(model):
            known[model._meta.concrete_model] += [str(instance.pk) for instance in instances]
    yield from known.items()
    for rows in collector.fast_deletes:
        if _is_owner(rows.model):
            owner = rows.model._meta.concrete_model
            yield owner, _texts_of(owner, rows, collector.using)


def _is_owner(model: type[Model]) -> bool:
    """Return whether the framework's columns are in the model's own table."""
    return getattr(model, "_state_owner", None) is model._meta.concrete_model


def _texts_of(owner: type[Model], rows: QuerySet[Model], using: str) -> Keys:
    if are_apart(owner, using):
        # Tables of all nodes cannot be in a subquery on one.
        return [str(pk) for pk in keys_in(rows.using(using))]
    texts: QuerySet[Model] = rows.using(using).order_by().annotate(stator_key=key_text(owner, using, F))
    if owner._meta.is_composite_pk:
        # Django 6.1 takes a subquery of such a model for all columns of its key.
        return list(texts.values_list("stator_key", flat=True))
    return texts.values("stator_key")


def _with_records(owner: type[Model], using: str, keys: Keys, *, unmarked: bool = False) -> list[RecordTable]:
    """Return the tables that may have records of rows, by one statement; ``unmarked``: of those that name no life."""
    tables = [table for table in RECORD_TABLES if table.of_life and not (unmarked and table.marked)]
    few = keys if isinstance(keys, list) and len(keys) <= FEW else []
    connection = connections[using]
    shape = using, len(few), *(table.model for table in tables), seconds_ahead(connection)
    statement = _statements.get(shape, lambda: _looking(using, tables, len(few)))
    values = {"label": owner._meta.label_lower, **{f"key {number}": key for number, key in enumerate(few)}}
    [answer] = fetch_all(connection, statement.text, statement.bind(connection, values))
    return [table for table, has_rows in zip(tables, answer, strict=True) if has_rows]


def _looking(using: str, tables: Sequence[RecordTable], count: int) -> Statement:
    label = Parameter("label", CharField())
    named = Q(object_pk__in=[Parameter(f"key {number}", CharField()) for number in range(count)]) if count else Q()
    queries: list[QuerySet[Model]] = [
        QuerySet(table.model, using=using).filter(table.present() if table.present else named, model_label=label)
        for table in tables
    ]
    return Statement.of("SELECT ", joined(list(map(existing, queries)), ", "))


def _forget(owner: type[Model], using: str, keys: Keys, tables: Iterable[RecordTable]) -> None:
    for table in tables:
        if table.end is not None:
            table.end(owner, using, keys)
            continue
        records: Any = QuerySet(table.model, using=using).filter(model_label=owner._meta.label_lower)
        parts: list[Keys] = [keys]
        if isinstance(keys, list):
            parts = [keys[start : start + PART] for start in range(0, len(keys), PART)]
        for part in parts:
            records.filter(object_pk__in=part)._raw_delete(using)


def forget_left(owner: type[Model], using: str, inserted: Sequence[models.Model]) -> None:
    """Forget what raw SQL has left of rows whose keys are inserted again, by people and not by a default.

    Most records tell by their ``life`` that they are of another one.
    """
    if any(field.has_default() for field in owner._meta.pk_fields):
        return
    if keys := [str(instance.pk) for instance in inserted if instance.__dict__.get(LIFE) is not None]:
        _forget(owner, using, keys, _with_records(owner, using, keys, unmarked=True))
