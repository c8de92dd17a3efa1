"""The column with the state of a row: its name, its type, and what is stored for each state.

No other module spells the name of the column. Histories, reports, statistics, pauses and signals have names of states.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models
from django.db.models import Case, F, Value, When
from django.db.models.functions import Cast
from django.db.models.lookups import Exact

from stator.graph.graphs import StateGraph, state_problem
from stator.graph.states import State
from stator.texts import bounded

# The name that needs no quotes in any SQL, as those of the framework's other columns.
USUAL_NAME = "state"

# Names of states that no graph has and of which that was logged in this process; and how many are remembered.
_noted: set[tuple[object, object]] = set()
MAX_NOTED = 1000

logger = logging.getLogger("stator.rows")


class AsDjangoField(models.Field):
    """A field that reports the plain Django field as its class, and becomes a plain field once it is copied.

    Migrations, expressions that mix columns, serializers, form libraries and fixture factories choose by the class of a
    field. Packages copy fields to models that are not managed, where nothing may depend on the other columns.
    """

    django_class: Any

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.django_class

    def __deepcopy__(self, memodict: dict[int, Any]) -> Any:
        # A model inherits the fields of its abstract bases by this method, so the copy keeps its class.
        copied: Any = super().__deepcopy__(memodict)
        copied.__class__ = type(self)
        return copied


class StateField(AsDjangoField):
    """The state of a row, one of ``graph``; accepts a ``State``, its name or its value wherever a value is accepted.

    It owns the column: nothing else spells its name, or knows what is stored for a state.
    """

    def __new__(cls, graph: Any, **kwargs: Any) -> Self:
        """Return a field of the type of the stored values, which are names unless the graph says otherwise."""
        has_numbers = any(isinstance(state.value, int) for state in getattr(graph, "states", {}).values())
        storing: Any = _storing(cls, models.IntegerField if has_numbers else models.CharField)  # type: ignore[arg-type]
        return super().__new__(storing)

    def __init__(self, graph: type[StateGraph], **kwargs: Any) -> None:
        if not (isinstance(graph, type) and issubclass(graph, StateGraph) and graph.states):
            raise TypeError(f"StateField() takes a StateGraph subclass, not {graph!r}")
        self.graph = graph
        # The states by their stored values.
        self.states: dict[object, State] = {state.value: state for state in graph.states.values()}
        self._is_text = self.django_class is models.CharField
        # Whether what is stored is the names.
        self.has_names = all(state.value == name for name, state in graph.states.items())
        # Returns the name of the state for a stored value; the text of a value that this code does not know.
        self.name_of: Callable[[object], str] = str if self.has_names else self._name_of
        if self._is_text:
            kwargs.setdefault("max_length", 100)
        kwargs.setdefault("editable", False)
        kwargs["choices"] = graph.choices
        kwargs["default"] = graph.initial_state.value
        super().__init__(**kwargs)

    def at(self, state: State | str, *, gone: bool = False) -> dict[str, Any]:
        """Return the column with what is stored for a state, as a filter or as a change.

        ``gone``: the graph may lack it, which is no mistake.
        """
        if gone:
            _noted.add((self.graph, state))
        return {self.name: self.stored(state)}

    def among(self, states: Iterable[State | str]) -> dict[str, Any]:
        """Return a filter for the rows in any of these states; a name that no row can have finds none."""
        values = [self.stored(state) for state in states]
        return {f"{self.name}__in": values if self._is_text else [each for each in values if _is_number(each)]}

    def asked(self, states: Iterable[State | str]) -> dict[str, str]:
        """Return the filter for rows in any of these states as a list of objects has it in its address."""
        values = [str(self.stored(state)) for state in states]
        return {f"{self.name}__{'exact' if len(values) == 1 else 'in'}": ",".join(values)}

    def find(self, text: str) -> State | None:
        """Return the state with this name, or with this value in an address; None if this code does not know it."""
        return self.graph.states.get(text) or next(
            (s for s in self.graph.states.values() if str(s.value) == text), None
        )

    def stored(self, state: object) -> Any:
        """Return what is stored for a state, its name or its value; anything else is returned as it is."""
        if isinstance(state, State):
            return state.value
        if self.has_names or not isinstance(state, str):
            return state
        found = self.graph.states.get(state)
        return state if found is None else found.value

    def _name_of(self, value: object) -> str:
        found = self.states.get(value)
        return str(value) if found is None else found.name

    def of(self, instance: Any) -> str:
        """Return the name of the state of an object; the text of a value that this code does not know."""
        return self.name_of(self.stored(getattr(instance, self.attname)))

    def state_of(self, instance: Any) -> State | None:
        """Return the state of an object; None if this code does not know it."""
        return self.states.get(self.stored(getattr(instance, self.attname)))

    def named(self, of: Callable[[str], Any] = F) -> Any:
        """Return an expression for the name of a row's state, which our own tables have.

        ``of``: makes an expression of the column's name, such as ``OuterRef``.
        """
        column = of(self.name)
        if self.has_names:
            return column
        cases = [When(Exact(column, state.value), then=Value(name)) for name, state in self.graph.states.items()]
        return Case(*cases, default=Cast(column, models.CharField()), output_field=models.CharField())

    def names_in(self, rows: Any) -> Any:
        """Return the names of the states of these rows as a queryset of one column."""
        return rows.values(self.name) if self.has_names else rows.values(stator_name=self.named())

    def of_name(self, name: Any) -> Any:
        """Return an expression for what is stored for a state, of an expression for its name."""
        if self.has_names:
            return name
        cases = [When(Exact(name, Value(each)), then=Value(state.value)) for each, state in self.graph.states.items()]
        return Case(*cases, output_field=self.django_class())

    if TYPE_CHECKING:
        # Django puts an attribute in the place of the field.
        def __get__(self, instance: Any, owner: Any) -> str: ...  # type: ignore[override]

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        # Migrations record the values, so that makemigrations notices when one is gone. Their order does not matter.
        kwargs["choices"] = sorted(self.graph.choices)
        return name, path, args, kwargs

    def clone(self) -> "StateField":
        """Return a copy for another model, with its graph, which the plain form for migrations lacks."""
        return StateField(self.graph, **self.deconstruct()[3])

    def to_python(self, value: object) -> Any:
        return super().to_python(self.stored(value))

    def get_prep_value(self, value: object) -> Any:
        if type(value) is str and self.has_names:
            if value not in self.states:
                self._note_unknown(value)
            return value
        return super().get_prep_value(self.stored(value))

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
        if add and isinstance(value, str | int) and value not in self.states:
            raise ValueError(state_problem(self.graph, value))
        return value

    def validate(self, value: Any, model_instance: Any) -> None:
        """Refuse what a save would refuse; Django leaves fields that are not editable to the code that sets them."""
        if value == getattr(model_instance, "_loaded_state", None):
            return
        if (state := self.states.get(self.stored(value))) is None:
            raise ValidationError(state_problem(self.graph, value), "invalid_choice")
        if not state.enter_by_hand and getattr(model_instance, "_is_moving", False):
            raise ValidationError(
                f"{self.graph.__name__}.{state.name} can be entered only by the framework", "protected"
            )


def _is_number(value: object) -> bool:
    return not isinstance(value, str) or value.lstrip("-").isdecimal()


@lru_cache(maxsize=16)
def _storing(cls: Any, django_class: type[models.Field]) -> Any:
    """Return a class of ``StateField`` as a class of fields for texts or numbers."""
    return type(cls)(cls.__name__, (cls, django_class), {"django_class": django_class, "__module__": cls.__module__})


def state_field(model: type[models.Model]) -> StateField:
    """Return the field of a managed model, or of its parent, that has the state."""
    found: StateField | None = getattr(model, "_state_field", None)
    if found is None:
        raise FieldDoesNotExist(f"{model._meta.label} has no StateField")
    return found


def state_of(instance: Any) -> State | None:
    """Return the state of an object of a managed model; None if this code does not know it."""
    field: StateField = instance._state_field
    return field.state_of(instance)


def state_name(instance: Any) -> str:
    """Return the name of the state of an object of a managed model, or the text of a value without a name."""
    field: StateField = instance._state_field
    return field.of(instance)
