"""Reconcile on change: an object whose watched fields change is attempted again."""

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from functools import lru_cache

from django.db import transaction
from django.db.models import DEFERRED, Field, Model, QuerySet
from django.db.models.fields.files import FieldFile

from stator.graph.states import State
from stator.rows import columns
from stator.rows.life import new_wish
from stator.rows.locking import Locked, in_batches, parts_of
from stator.rows.meta import field_of, graph_of, option_of, owner_of, written_to
from stator.rows.state_column import state_field
from stator.rows.transitions import move_by_hand, move_rows, write_by_hand


@lru_cache(maxsize=1024)
def fields_of(model: type[Model]) -> tuple[Field, ...]:
    """Return the watched fields of a model."""
    return tuple(field_of(model, name) for name in option_of(model, "reconcile_on"))


def watched_fields(model: type[Model], names: Collection[str]) -> list[str]:
    """Return the fields among ``names``, given by name or by column, that are in ``reconcile_on``."""
    return [field.name for field in fields_of(model) if field.name in names or field.attname in names]


def watched_values(instance: Model) -> dict[str, object]:
    """Return the values of an instance's watched fields, out of its reach; ``DEFERRED`` for fields not loaded."""
    values = instance.__dict__
    return {field.name: _detached(values.get(field.attname, DEFERRED)) for field in fields_of(type(instance))}


def note(instance: Model, names: Collection[str] | None = None) -> None:
    """Note that watched fields, all or the named ones, are in the database as they are here."""
    values = watched_values(instance) if fields_of(type(instance)) else {}
    watched = values if names is None else watched_fields(type(instance), names)
    if watched:
        instance.__dict__["_loaded_watched"] = _noted(instance) | {name: values[name] for name in watched}


def changes_of(instance: Model, names: set[str], using: str) -> list[str]:
    """Return the named watched fields whose values differ from the loaded ones, or are expressions.

    Of values that were not loaded the row is asked; without a row nothing changes.
    """
    loaded, now, watched = _noted(instance), watched_values(instance), watched_fields(type(instance), names)
    if unread := [name for name in watched if loaded.get(name, DEFERRED) is DEFERRED]:
        stored = QuerySet(type(instance), using=using).filter(pk=instance.pk).values(*unread).first()
        if stored is None:
            return []
        loaded = loaded | stored
    return [name for name in watched if now[name] != loaded[name] or hasattr(now[name], "resolve_expression")]


def _noted(instance: Model) -> dict[str, object]:
    noted: dict[str, object] = instance.__dict__.get("_loaded_watched", {})
    return noted


def _detached(value: object) -> object:
    """Return a value that stays as it is when the given one is changed in place."""
    if isinstance(value, FieldFile):
        return value.name
    # Types that are compared by value and can be changed have no hash: lists, dictionaries and their like.
    return deepcopy(value) if type(value).__hash__ is None else value


def look_again(rows: QuerySet[Model], changed: Iterable[str]) -> None:
    """Attempt rows now, ending claims made before the change; rows in terminal states return to the initial state.

    For all of them a new wish begins.
    """
    graph, wish = graph_of(rows.model), new_wish()
    automatic, settled = graph.automatic_states, graph.terminal_states - {graph.initial_state}
    among = state_field(rows.model).among
    rows.exclude(**among([*automatic, *settled])).update(**wish)
    write_by_hand(rows.filter(**among(automatic)), columns.unlocking() | wish)
    why = f"{', '.join(sorted(changed))} changed"
    move_rows(rows.filter(**among(settled)), graph.initial_state, reason=why, also=wish)


def update_and_look_again(queryset: QuerySet[Model], values: Mapping[str, object], watched: list[str]) -> int:
    """Update the rows and reconcile the rows whose watched fields really changed; return how many were updated."""
    model, owner = queryset.model, owner_of(queryset.model)
    annotated = bool(queryset.query.annotations) and not queryset.query.is_sliced

    def write(using: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        pks = [row.pk for row in before]
        mine: QuerySet[Model] = QuerySet(model, using=using).filter(pk__in=pks)
        # The values are compared here: the database cannot compare every type, nor the future value of an expression.
        was = _values(mine, watched)
        # A value may refer to an annotation of the queryset, whose own ``update`` has called this function.
        plain = queryset.using(using).order_by().filter(pk__in=pks) if annotated else mine
        updated = QuerySet.update(plain, **values)
        changed = [pk for pk, now in _values(mine, watched).items() if now != was[pk]]
        look_again(QuerySet(owner, using=using).filter(pk__in=changed), watched)
        return updated

    # All or nothing, like any update.
    with transaction.atomic(using=written_to(queryset)):
        return in_batches(queryset, write)


def move_with_new_values(
    queryset: QuerySet[Model], state: State | str, values: Mapping[str, object], watched: list[str]
) -> int:
    """Move rows by hand and write values with the move; where watched fields really change, a new wish begins."""
    using = written_to(queryset)
    with transaction.atomic(using=using):
        was = _values(queryset.using(using), watched)
        moved = move_by_hand(queryset, state, also=values)
        for some in parts_of(queryset.model, was):
            now = _values(QuerySet(queryset.model, using=using).filter(pk__in=some), watched)
            changed = [pk for pk, new in now.items() if new != was[pk]]
            QuerySet(owner_of(queryset.model), using=using).filter(pk__in=changed).update(**new_wish())
    return moved


def _values(rows: QuerySet[Model], watched: list[str]) -> dict[object, list[object]]:
    return {pk: values for pk, *values in rows.values_list("pk", *watched)}
