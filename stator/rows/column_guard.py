"""The guard on the framework's columns: no manager or queryset of a managed model writes them directly."""

import copyreg
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from django.db import NotSupportedError, models, transaction
from django.db.models import Field, Manager, Model, QuerySet

from stator.exceptions import ProtectedColumn
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.fields import fields_sent
from stator.rows.followers import update_and_follow
from stator.rows.keys import key_fields
from stator.rows.life_ends import forget_left
from stator.rows.meta import owner_of, written_to
from stator.rows.reconcile import move_with_new_values, update_and_look_again, watched_fields
from stator.rows.rollbacks import before_save, note_save, remembered
from stator.rows.state_column import state_field
from stator.rows.transitions import move_by_hand
from stator.rows.wakeup import announce
from stator.scopes import TABLES

M = TypeVar("M", bound=Model)


class GuardedQuerySet(QuerySet[M]):
    """The base of a managed model's querysets: only transitions write the framework's columns."""

    def update(self, **values: Any) -> int:
        """Update like Django; ``state`` moves the rows by hand, and other columns of the framework are refused.

        If a field of ``reconcile_on`` changes, its rows are reconciled.
        """
        if not hasattr(self.model, "state_graph"):
            return super().update(**values)
        field = state_field(self.model)
        own = field.name
        if not (own in values or values.keys() & FRAMEWORK_COLUMNS):
            watched = watched_fields(self.model, values)
            if watched and not field.is_left:
                return update_and_look_again(self, values, watched)
            return update_and_follow(self, values, partial(super().update, **values))
        _refuse(self.model, values.keys() & FRAMEWORK_COLUMNS)
        if field.is_left:
            return super().update(**values)
        state = values.pop(own)
        if hasattr(state, "resolve_expression"):
            _refuse(self.model, [own])
        if watched := watched_fields(self.model, values):
            return move_with_new_values(self, state, values, watched)
        if field.are_left(state):
            # Other code moves its own rows, and takes over others by hand.
            plain = super(GuardedQuerySet, self.filter(**field.among(field.left))).update(**{own: state}, **values)
            return plain + move_by_hand(self.exclude(**field.among(field.left)), state, also=values)
        return move_by_hand(self, state, also=values)

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_update(self, objs: Iterable[M], fields: Iterable[str], batch_size: int | None = None) -> int:
        """Update like Django, and note in the objects what was written, so that a later ``save()`` is no change."""
        written: tuple[Any, ...] = tuple(objs)
        fields = tuple(fields)
        updated = super().bulk_update(written, fields, batch_size)
        if hasattr(self.model, "state_graph"):
            with remembered(self.db, written, ["_loaded_watched"]):
                for instance in written:
                    instance._note_written(set(fields))
        return updated

    bulk_update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(
        self,
        objs: Iterable[M],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[M]:
        """Insert like Django and wake workers after the commit; conflicts may not overwrite the framework's columns."""
        new: list[Any] = list(objs)
        managed, conflicts = hasattr(self.model, "state_graph"), ignore_conflicts or update_conflicts
        if managed:
            field = state_field(self.model)
            kept = FRAMEWORK_COLUMNS if field.is_left else {*FRAMEWORK_COLUMNS, field.name}
            _refuse(self.model, {*(update_fields or ())} & kept)
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


_guarded_classes: dict[type, type] = {}


def guard_managers(model: type[models.Model]) -> None:
    """Make every manager of the model, including related managers, return guarded querysets."""
    for base in model.__mro__:
        for manager in getattr(getattr(base, "_meta", None), "local_managers", ()):
            manager.__class__ = _guarded_manager(type(manager))
    model._meta._expire_cache()  # type: ignore[attr-defined]


def _guarded_manager(cls: type[Manager[Model]]) -> type[Manager[Model]]:
    if issubclass(getattr(cls, "_queryset_class", object), GuardedQuerySet):
        return cls
    if cls not in _guarded_classes:
        _guarded_classes[cls] = _subclass_manager(cls)
    return _guarded_classes[cls]


def _subclass_manager(cls: Any) -> type[Manager[Model]]:
    def get_queryset(self: Manager[Model]) -> QuerySet[Model]:
        queryset = cls.get_queryset(self)
        if not isinstance(queryset, GuardedQuerySet):
            queryset.__class__ = _guarded_queryset(type(queryset))
        return queryset

    # The manager may build its queryset itself instead of from its class.
    own = {} if cls.get_queryset is Manager.get_queryset else {"get_queryset": get_queryset}
    return _namesake(cls, _guarded_manager, (cls,), _queryset_class=_guarded_queryset(cls._queryset_class), **own)


def _guarded_queryset(cls: type) -> type:
    if issubclass(cls, GuardedQuerySet):
        return cls
    if cls not in _guarded_classes:
        _guarded_classes[cls] = _namesake(cls, _guarded_queryset, (GuardedQuerySet, cls))
    return _guarded_classes[cls]


class _Namesake(type):
    """The type of the guarded classes, which pickle cannot find by their names."""


def _namesake(cls: type, guard: Callable[[type], type], bases: tuple[type, ...], **body: object) -> type:
    """Return a subclass under the name of ``cls``; migrations look up the name and find that class instead."""
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_pickled": (guard, (cls,))}
    return (_Namesake if type(cls) is type else type(cls))(cls.__name__, bases, {**named, **body})


def _reduce(cls: _Namesake) -> str | tuple[Any, ...]:
    # A class that another package derives from a guarded one is found by its name.
    return vars(cls).get("_pickled", cls.__qualname__)


copyreg.pickle(_Namesake, _reduce)


def _refuse(model: type[Model], names: Iterable[str]) -> None:
    if names := sorted(names):
        raise ProtectedColumn(
            f"{model.__name__}: {', '.join(names)} can be written only by a transition; "
            f"use {model.__name__}.transition_perform_queryset(queryset, state)"
        )
