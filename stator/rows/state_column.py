"""The column with the state of a row: its name, its type, and what is stored for each state.

No other module spells the name of the column. Histories, reports, statistics, pauses and signals have names of states.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models
from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.models import DEFERRED, Case, F, Model, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast
from django.db.models.lookups import Exact, In, IsNull, Lookup
from django.db.models.query_utils import DeferredAttribute

from stator.graph.graphs import StateGraph, at_rest, state_problem
from stator.graph.options import STATE_NAME_LENGTH
from stator.graph.states import State
from stator.texts import bounded

Rows = TypeVar("Rows", bound=QuerySet[Model])

# The name that needs no quotes in any SQL, as those of the framework's other columns.
USUAL_NAME = "state"

# The name of the state of rows that have none.
UNMANAGED = "unmanaged"

# Names of states that no graph has and of which that was logged in this process; and how many are remembered.
_noted: set[tuple[object, object]] = set()
MAX_NOTED = 1000

logger = logging.getLogger("stator.rows")


class StoredAttribute(DeferredAttribute):
    """Gives an object what is stored for a state as soon as the state, or its name, is assigned."""

    field: Any

    def __set__(self, instance: models.Model, value: object) -> None:
        instance.__dict__[self.field.attname] = self.field.stored(value)


class AsDjangoField(models.Field):
    """A field that reports the plain Django field as its class, and becomes a plain field once it is copied.

    Migrations, expressions that mix columns, serializers, form libraries and fixture factories choose by the class of a
    field. Packages copy fields to models that are not managed, where nothing may depend on the other columns.
    """

    django_class: type

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        # The class that it has beside this one.
        cls.django_class = next(each for each in cls.__mro__ if not issubclass(each, AsDjangoField))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.django_class

    def __deepcopy__(self, memodict: dict[int, object]) -> Self:
        # A model inherits the fields of its abstract bases by this method, so the copy keeps its class.
        copied: Any = super().__deepcopy__(memodict)
        copied.__class__ = type(self)
        return copied


if TYPE_CHECKING:
    import typing_extensions

    V = typing_extensions.TypeVar("V", default=str)

    class _Column(models.Field[V, V]):
        """A field with values of one type, to which states and their names are assigned, too."""

        django_class: type

        # Django puts an attribute in the place of the field.
        def __get__(self, instance: object, owner: object) -> V: ...  # type: ignore[override]
        def __set__(self, instance: Model, value: object) -> None: ...

else:
    V = None

    class _Column(AsDjangoField):
        def __class_getitem__(cls, item):
            """Return the class: ``StateField[int]`` is for type checkers."""
            return cls


class StateField(_Column[V]):
    """The state of a row, one of ``graph``; accepts a ``State``, its name or its value wherever a value is accepted.

    The column has the type of the values of the states: integers, or texts. ``base_field``: a class of Django's fields
    for a column of another type, such as ``models.PositiveSmallIntegerField``. ``null``: rows without a state are
    unmanaged, so workers leave them alone until a state is assigned.

    It owns the column: nothing else spells its name, or knows what is stored for a state.
    """

    def __new__(cls, graph: object, *, base_field: object = None, **kwargs: object) -> Self:
        """Return a field of the type of the stored values, which are names unless the graph says otherwise."""
        if not (isinstance(graph, type) and issubclass(graph, StateGraph) and graph.states):
            raise TypeError(f"StateField() takes a StateGraph subclass, not {graph!r}")
        storing: Any = _storing(cls, _base_of(graph, base_field))  # type: ignore[arg-type]
        return super().__new__(storing)

    def __init__(self, graph: type[StateGraph], *, base_field: type[models.Field] | None = None, **kwargs: Any) -> None:
        # As it is declared; ``graph`` is what workers have of it.
        self.declared = graph
        self.leave(())
        self._is_text = not issubclass(self.django_class, models.IntegerField)
        null = bool(kwargs.get("null"))
        # Whether what is stored is the names, in every row.
        self.has_names = not null and all(state.value == name for name, state in graph.states.items())
        # Returns the name of the state for a stored value; the text of a value that this code does not know.
        self.name_of: Callable[[object], str] = str if self.has_names else self._name_of
        if not self.has_names:
            self.descriptor_class = StoredAttribute
        if null and UNMANAGED in self._meant:
            raise TypeError(f"StateField({graph.__name__}, null=True): {UNMANAGED!r} means null; name that state anew")
        if issubclass(self.django_class, models.CharField):
            kwargs.setdefault("max_length", STATE_NAME_LENGTH)
        if "db_default" in kwargs:
            kwargs["db_default"] = self.stored(kwargs["db_default"])
        kwargs.setdefault("editable", False)
        kwargs["choices"] = graph.choices
        kwargs["default"] = graph.initial_state.value
        super().__init__(**kwargs)
        if null:
            # Django validates no empty value of a field that may be blank.
            self.empty_values = []

    def leave(self, names: Collection[str]) -> None:
        """Leave the rows in these states to other code: workers do nothing to them, and it writes the column plainly.

        :func:`~stator.rows.left.leave` calls it, which forgets what was remembered of the graph.
        """
        self.left = frozenset(names)
        self.graph: type[StateGraph] = at_rest(self.declared, self.left) if self.left else self.declared
        # The states by their stored values.
        self.states: dict[object, State] = {state.value: state for state in self.graph.states.values()}
        # The states by whatever means them: names, values, and values as an address or a terminal has them.
        self._meant: dict[object, State] = {str(value): state for value, state in self.states.items()}
        self._meant.update(self.graph.states)
        self._meant.update(self.states)
        # Whether other code moves all rows.
        self.is_left = len(self.left) == len(self.graph.states)

    def are_left(self, *states: object) -> bool:
        """Return whether all of these states, names or values are left to other code."""
        return bool(self.left) and all((named := self.find(each)) and named.name in self.left for each in states)

    def at(self, state: State | str, *, gone: bool = False) -> dict[str, object]:
        """Return the column with what is stored for a state, as a filter or as a change.

        ``gone``: the graph may lack it, which is no mistake.
        """
        if gone:
            _noted.add((self.graph, state))
            [value] = self.values([state]) or [self.stored(state)]
            return {self.name: value}
        return {self.name: self.stored(state)}

    def among(self, states: Iterable[State | str | int]) -> dict[str, list[object]]:
        """Return a filter for the rows in any of these states; a name that no row can have finds none."""
        return {f"{self.name}__in": self.values(states)}

    def values(self, states: Iterable[State | str | int]) -> list[object]:
        """Return what is stored for states, for lookups; values that this code does not know are no mistake."""
        values = [self.stored(state) for state in states]
        if self.has_names:
            return values
        if not self._is_text:
            values = [int(each) for each in values if _is_number(each)]
        # Lookups leave expressions as they are.
        return [each if each in self.states else Value(each, self.django_class()) for each in values]

    def managed(self, rows: Rows) -> Rows:
        """Return those of the rows that have a state, known or not."""
        return rows.exclude(**{self.name: None}) if self.null else rows

    def unmanaged(self, rows: Rows) -> Rows:
        """Return those of the rows that have no state."""
        return rows.filter(**{self.name: None}) if self.null else rows.none()

    def asked(self, states: Iterable[State | str]) -> dict[str, str]:
        """Return the filter for rows in any of these states as a list of objects has it in its address."""
        listed = list(states)
        if self.null and listed == [UNMANAGED]:
            return {f"{self.name}__isnull": "True"}
        values = [str(self.stored(state)) for state in listed]
        return {f"{self.name}__{'exact' if len(values) == 1 else 'in'}": ",".join(values)}

    def find(self, meant: object) -> State | None:
        """Return the state with this name, or with this value, also as a text; None if this code does not know it."""
        if isinstance(meant, State):
            return self.graph.states.get(meant.name)
        return self._meant.get(meant) if isinstance(meant, str | int) else None

    def stored(self, state: object) -> Any:
        """Return what is stored for a state, its name or its value; anything else is returned as it is.

        A state of another graph, such as the parent of this one, means the state of that name.
        """
        if isinstance(state, State):
            if state.graph is self.graph:
                return state.value
            return state.name if (own := self.graph.states.get(state.name)) is None else own.value
        if self.has_names or not isinstance(state, str):
            return state
        meant = self._meant.get(state)
        return state if meant is None else meant.value

    def _name_of(self, value: object) -> str:
        if value is None:
            return UNMANAGED
        state = self.states.get(value)
        return str(value) if state is None else state.name

    def of(self, instance: object) -> str:
        """Return the name of the state of an object; the text of a value that this code does not know."""
        return self.name_of(self.stored(getattr(instance, self.attname)))

    def loaded(self, instance: Model) -> object:
        """Return what is stored for the state that an object has now, never None; ``DEFERRED`` if it has none yet."""
        given = instance.__dict__.get(self.attname, DEFERRED)
        if self.has_names:
            return given
        return UNMANAGED if given is None else self.stored(given)

    def state_of(self, instance: object) -> State | None:
        """Return the state of an object; None if this code does not know it."""
        return self.states.get(self.stored(getattr(instance, self.attname)))

    def named(self, of: Callable[[str], Combinable] = F) -> Combinable:
        """Return an expression for the name of a row's state, which our own tables have.

        ``of``: makes an expression of the column's name, such as ``OuterRef``.
        """
        column = of(self.name)
        if self.has_names:
            return column
        cases = [When(Exact(column, state.value), then=Value(name)) for name, state in self.graph.states.items()]
        if self.null:
            cases.append(When(IsNull(column, True), then=Value(UNMANAGED)))
        return Case(*cases, default=Cast(column, models.CharField()), output_field=models.CharField())

    def names_in(self, rows: QuerySet[Model]) -> QuerySet[Model, dict[str, object]]:
        """Return the names of the states of these rows as a queryset of one column."""
        return rows.values(self.name) if self.has_names else rows.values(stator_name=self.named())

    def of_name(self, name: Combinable) -> Combinable:
        """Return an expression for what is stored for a state, of an expression for its name."""
        if self.has_names:
            return name
        cases = [When(Exact(name, Value(each)), then=Value(state.value)) for each, state in self.graph.states.items()]
        return Case(*cases, output_field=self.django_class())

    def deconstruct(self) -> tuple[str, str, Sequence[object], dict[str, object]]:
        name, path, args, kwargs = super().deconstruct()
        # Migrations record the values with the names, so that makemigrations notices when one is gone or changed, but
        # not another label or order.
        kwargs["choices"] = sorted((state.value, name) for name, state in self.graph.states.items())
        return name, path, args, kwargs

    def clone(self) -> "StateField[V]":
        """Return a copy for another model, with its graph, which the plain form for migrations lacks."""
        return StateField(self.declared, base_field=self.django_class, **self.deconstruct()[3])

    def to_python(self, value: object) -> object:
        return super().to_python(self.stored(value))

    def get_prep_value(self, value: object) -> object:
        if type(value) is str and self.has_names:
            if value not in self.states:
                self._note_unknown(value)
            return value
        return super().get_prep_value(self.stored(value))

    def get_lookup(self, lookup_name: str) -> type[Lookup] | None:
        lookup: Any = super().get_lookup(lookup_name)
        # Comparisons by order or pattern may name any value.
        return _refusing(lookup) if lookup and lookup_name in ("exact", "in") and not self.has_names else lookup

    def refuse_unknown(self, value: object) -> None:
        """Raise ``ValueError`` for a value in a lookup that means no state of the graph, which would find no rows."""
        if not (value is None or hasattr(value, "resolve_expression")) and self.stored(value) not in self.states:
            raise ValueError(state_problem(self.graph, value))

    def _note_unknown(self, name: str) -> None:
        """Log, once, that a query or a save names no state of the graph: a typo finds no rows, and says nothing."""
        if (self.graph, name) in _noted:
            return
        if len(_noted) >= MAX_NOTED:
            _noted.clear()
        _noted.add((self.graph, name))
        fields = {"graph": self.graph.__name__, "state": bounded(name, 100), "hint": state_problem(self.graph, name)}
        logger.warning("stator.unknown_state", extra=fields)

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        value = super().pre_save(model_instance, add)
        if not (self.has_names and type(value) is str):
            value = self.stored(value)
            setattr(model_instance, self.attname, value)
        if add and isinstance(value, str | int) and value not in self.states and not self.is_left:
            raise ValueError(state_problem(self.graph, value))
        return value

    def run_validators(self, value: object) -> None:
        if value is not None:
            super().run_validators(value)

    def validate(self, value: object, model_instance: object) -> None:
        """Refuse what a save would refuse; Django leaves fields that are not editable to the code that sets them."""
        loaded = getattr(model_instance, "_loaded_state", None)
        if self.stored(value) == loaded or (value is None and self.null and loaded in (None, UNMANAGED)):
            return
        if (state := self.states.get(self.stored(value))) is None:
            raise ValidationError(state_problem(self.graph, value), "invalid_choice")
        if not state.enter_by_hand and getattr(model_instance, "_is_moving", False):
            raise ValidationError(
                f"{self.graph.__name__}.{state.name} can be entered only by the framework", "protected"
            )


class _Refusing:
    """A lookup that refuses what means no state of the graph."""

    lhs: Any
    rhs: Any

    def get_prep_lookup(self) -> object:
        if not hasattr(self.rhs, "resolve_expression"):
            for each in self.rhs if isinstance(self, In) else [self.rhs]:
                self.lhs.output_field.refuse_unknown(each)
        return super().get_prep_lookup()  # type: ignore[misc]


@lru_cache(maxsize=16)
def _refusing(lookup: type) -> type:
    return type(lookup.__name__, (_Refusing, lookup), {})


def _base_of(graph: type[StateGraph], given: object) -> type[models.Field]:
    """Return the class of the fields that store the values of a graph; raise ``TypeError`` if they do not fit."""
    values = [state.value for state in graph.states.values()]
    numbers = [value for value in values if isinstance(value, int)]
    fitting: tuple[type, ...] = (models.IntegerField,) if numbers else (models.CharField, models.TextField)
    base: Any = fitting[0] if given is None else given
    where = f"StateField({graph.__name__}, base_field={getattr(base, '__name__', base)})"
    fits = isinstance(base, type) and issubclass(base, fitting) and not issubclass(base, models.AutoField)
    if not fits:
        kind = "integers" if numbers else "texts"
        raise TypeError(f"{where}: its values are {kind}, so give a class such as models.{fitting[0].__name__}")
    column: type[models.Field] = base
    least, most = BaseDatabaseOperations.integer_field_ranges[column().get_internal_type()] if numbers else (0, 0)
    if (wrong := next((value for value in numbers if not least <= value <= most), None)) is not None:
        raise TypeError(f"{where}: has no room for the value {wrong}; use a larger one, such as models.BigIntegerField")
    return column


def _is_number(value: object) -> bool:
    return not isinstance(value, str) or value.lstrip("-").isdecimal()


@lru_cache(maxsize=16)
def _storing(cls: Any, django_class: type[models.Field]) -> object:
    """Return a class of ``StateField`` as a class of fields for texts or numbers."""
    return type(cls)(cls.__name__, (cls, django_class), {"__module__": cls.__module__})


def state_field(model: type[models.Model]) -> StateField:
    """Return the field of a managed model, or of its parent, that has the state."""
    field: StateField | None = getattr(model, "_state_field", None)
    if field is None:
        raise FieldDoesNotExist(f"{model._meta.label} has no StateField")
    return field


def state_of(instance: Model) -> State | None:
    """Return the state of an object of a managed model; None if this code does not know it."""
    return state_field(type(instance)).state_of(instance)


def state_name(instance: Model) -> str:
    """Return the name of the state of an object of a managed model, or the text of a value without a name."""
    return state_field(type(instance)).of(instance)
