"""What Django's own writes mean for managed rows, and how each manager of a managed model gets them."""

import copyreg
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from django.db import NotSupportedError, models, transaction
from django.db.models import Field, Manager, Model, QuerySet

from stator.exceptions import ProtectedColumn
from stator.rows.fields import fields_sent
from stator.rows.followers import update_and_follow
from stator.rows.keys import key_fields
from stator.rows.life_ends import forget_left
from stator.rows.meta import M, owner_of, written_to
from stator.rows.rollbacks import before_save, note_save
from stator.rows.state_column import state_field
from stator.rows.transitions import move_by_hand
from stator.rows.wakeup import announce
from stator.scopes import TABLES


class MovingQuerySet(QuerySet[M]):
    """What ``update()`` and ``bulk_create()`` are for managed rows: moves by hand, and rows that begin."""

    def update(self, **values: Any) -> int:
        """Update like Django; ``state`` moves the rows by hand."""
        if not hasattr(self.model, "state_graph"):
            return super().update(**values)
        field = state_field(self.model)
        own = field.name
        if own not in values:
            return update_and_follow(self, values, partial(super().update, **values))
        if field.is_left:
            return super().update(**values)
        state = values.pop(own)
        if hasattr(state, "resolve_expression"):
            refuse(self.model, [own])
        if field.are_left(state):
            # Other code moves its own rows, and takes over others by hand.
            plain = super(MovingQuerySet, self.filter(**field.among(field.left))).update(**{own: state}, **values)
            return plain + move_by_hand(self.exclude(**field.among(field.left)), state, also=values)
        return move_by_hand(self, state, also=values)

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(
        self,
        objs: Iterable[M],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[M]:
        """Insert like Django and wake workers after the commit."""
        new: list[Any] = list(objs)
        managed, conflicts = hasattr(self.model, "state_graph"), ignore_conflicts or update_conflicts
        if managed:
            if ignore_conflicts:
                _refuse_to_ignore_conflicts(owner_of(self.model), written_to(self))
            # With conflicts, an object may represent the existing row, which may be in any state.
            for instance in new:
                if instance.pk is None or not conflicts:
                    instance._begin()
        using = written_to(self)
        noted = managed and not transaction.get_autocommit(using)
        before = [(instance, before_save(using, instance)) for instance in (new if noted else ())]
        created: list[Any] = super().bulk_create(
            new, batch_size, ignore_conflicts, update_conflicts, update_fields, unique_fields
        )
        if managed and not conflicts:
            forget_left(owner_of(self.model), self.db, created)
        for instance in created if managed and not conflicts else ():
            instance._note_loaded()
        for instance, was in before:
            if was is not None:
                note_save(using, instance, was)
        if managed:
            announce(owner_of(self.model), self.db)
        return created

    def _batched_insert(self, objs: list[M], fields: Sequence[Field], *args: object, **kwargs: object) -> object:
        if hasattr(self.model, "state_graph"):
            fields = fields_sent(self.model, objs, fields, self.db)
        return super()._batched_insert(objs, fields, *args, **kwargs)  # type: ignore[misc]


def _refuse_to_ignore_conflicts(model: type[Model], using: str) -> None:
    column = TABLES.divided_by(model, using)
    if column and column not in {field.name for field in key_fields(model)}:
        raise NotSupportedError(
            f"{model._meta.label}: bulk_create(ignore_conflicts=True) could store a second object under one key, "
            f"because its table is divided by {column}; leave out objects that exist"
        )


_managed_classes: dict[type, type] = {}


def manage(model: type[models.Model], base: type[QuerySet[Model]]) -> None:
    """Make every manager of the model, including related managers, return querysets that also are ``base``."""
    for cls in model.__mro__:
        for manager in getattr(getattr(cls, "_meta", None), "local_managers", ()):
            manager.__class__ = _managed_manager(type(manager), base)
    model._meta._expire_cache()  # type: ignore[attr-defined]


def _managed_manager(cls: type[Manager[Model]], base: type[QuerySet[Model]]) -> type[Manager[Model]]:
    if issubclass(getattr(cls, "_queryset_class", object), base):
        return cls
    if cls not in _managed_classes:
        _managed_classes[cls] = _subclass_manager(cls, base)
    return _managed_classes[cls]


def _subclass_manager(cls: Any, base: type[QuerySet[Model]]) -> type[Manager[Model]]:
    def get_queryset(self: Manager[Model]) -> QuerySet[Model]:
        queryset = cls.get_queryset(self)
        if not isinstance(queryset, base):
            queryset.__class__ = _managed_queryset(type(queryset), base)
        return queryset

    # The manager may build its queryset itself instead of from its class.
    own: dict[str, object] = {} if cls.get_queryset is Manager.get_queryset else {"get_queryset": get_queryset}
    own["_queryset_class"] = _managed_queryset(cls._queryset_class, base)
    return _namesake(cls, _managed_manager, (cls,), base, **own)


def _managed_queryset(cls: type, base: type[QuerySet[Model]]) -> type:
    if issubclass(cls, base):
        return cls
    if cls not in _managed_classes:
        _managed_classes[cls] = _namesake(cls, _managed_queryset, (base, cls), base)
    return _managed_classes[cls]


class _Namesake(type):
    """The type of the classes that are made here, which pickle cannot find by their names."""


def _namesake(
    cls: type, make: Callable[..., type], bases: tuple[type, ...], base: type[QuerySet[Model]], **body: object
) -> type:
    """Return a subclass under the name of ``cls``; migrations look up the name and find that class instead."""
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_pickled": (make, (cls, base))}
    return (_Namesake if type(cls) is type else type(cls))(cls.__name__, bases, {**named, **body})


def _reduce(cls: _Namesake) -> str | tuple[Any, ...]:
    # A class that another package derives from one of these is found by its name.
    return vars(cls).get("_pickled", cls.__qualname__)


copyreg.pickle(_Namesake, _reduce)


def refuse(model: type[Model], names: Iterable[str]) -> None:
    """Raise ``ProtectedColumn`` if there are names of columns that only transitions write."""
    if names := sorted(names):
        raise ProtectedColumn(
            f"{model.__name__}: {', '.join(names)} can be written only by a transition; "
            f"use {model.__name__}.transition_perform_queryset(queryset, state)"
        )
