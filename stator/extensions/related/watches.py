"""Edges by related objects: ``when_all`` and ``when_any``, as their models have them.

The move of a related object moves the object that waits for it, in the same transaction. Two related objects that move
at the same moment do not see each other. So a transaction that moves one either *hands on*: it locks a related object
that is unfinished, whose own move must wait for this commit and then sees it. Or it locks the waiting object before it
looks: the second one to get that lock sees both.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import Exists, F, ForeignKey, ForeignObjectRel, Model, OuterRef, Q, QuerySet, Subquery

from stator.extensions.related.edges import AwaitedRelation
from stator.graph.graphs import state_problem
from stator.graph.states import State
from stator.rows.edges import add_edge_condition
from stator.rows.left import of_graph
from stator.rows.meta import graph_of, owner_of
from stator.rows.state_column import state_field
from stator.scopes import are_apart, read_first


@dataclass(frozen=True)
class RelatedWatch:
    """An edge of ``model`` from ``state`` to ``target`` by objects of ``other``, the owner of their state.

    ``unfinished``: the known states of these that are not in the condition.
    """

    model: type[Model]
    state: State
    target: State
    condition: AwaitedRelation
    other: type[Model]
    unfinished: tuple[str, ...]

    @property
    def name(self) -> str:
        """The relation."""
        return self.condition.relation

    def waiting_for(self, using: str, pks: Collection[object]) -> QuerySet[Model]:
        """Return the objects that are related to some objects of ``other``, whatever state they are in."""
        if self._apart(using) and self._equal:
            mine, others = self._equal
            return self._rows(using).filter(**{f"{mine}__in": self._others(using).filter(pk__in=pks).values(others)})
        return self._rows(using).filter(pk__in=self._rows(using).filter(**{f"{self.name}__in": pks}).values("pk"))

    def related_to_one(self, using: str, pk: object) -> QuerySet[Model]:
        """Return the related objects of one object of ``model``."""
        related = self._others(using)
        if self.key:
            return related.filter(**{f"{self.key}__pk": pk})
        return related.filter(pk__in=self._rows(using).filter(pk=pk).values(f"{self.name}__pk"))

    @property
    def to_one(self) -> bool:
        """Whether an object has one related object at most."""
        return bool(self._relation.many_to_one or self._relation.one_to_one)

    def related_to(self, using: str, waiting: Collection[object], pks: Collection[object]) -> list[object]:
        """Return which of the objects of ``other`` are related to some waiting objects."""
        if self._apart(using) and self._equal:
            mine, others = self._equal
            meant = {f"{others}__in": self._rows(using).filter(pk__in=waiting).values(mine)}
            return list(self._others(using).filter(pk__in=pks, **meant).values_list("pk", flat=True))
        related = self._rows(using).filter(pk__in=waiting, **{f"{self.name}__in": pks})
        return list(related.values_list(f"{self.name}__pk", flat=True).distinct())

    def met(self, among: QuerySet[Model]) -> Q:
        """Return the condition as a filter for the objects ``among``. Index over the relation and ``state``."""
        if not self.condition.every:
            return Q(self._exists(among, Q(stator_state__in=self.condition.in_)))
        # The states that this code knows are checked first, by the index; other states take all related objects.
        unfinished = state_field(self.other).values(self.unfinished)
        met = ~Q(self._exists(among, Q(stator_state__in=unfinished))) if unfinished else Q()
        met &= ~Q(self._exists(among, ~Q(stator_state__in=self.condition.in_)))
        return met if self.condition.empty else met & Q(self._exists(among, Q()))

    @cached_property
    def unfinished_values(self) -> list[object]:
        """What is stored for the unfinished states."""
        return list(map(state_field(self.other).stored, self.unfinished))

    @property
    def hands_on(self) -> bool:
        """Whether a related object that is unfinished can be found by an index and locked."""
        return bool(self.condition.every and self.unfinished and self.key)

    def not_handed_on(self, using: str, pks: Collection[object]) -> list[object]:
        """Return the waiting objects that moved objects of ``other`` may complete, by their keys in order.

        Others have unfinished related objects; one of these is locked now until the transaction ends.
        """
        waiting = self.waiting_for(using, pks).order_by("pk")
        # An object on another node cannot be locked in this statement.
        if not self.hands_on or self._apart(using):
            return list(waiting.values_list("pk", flat=True))
        pairs = waiting.annotate(stator_next=Subquery(self._next(using))).values_list("pk", "stator_next")
        return [pk for pk, following in pairs if following is None]

    def _next(self, using: str) -> QuerySet[Model, dict[str, object]]:
        """Return an unfinished related object, locked; its claim, or its move by hand, comes after this commit.

        It is not claimed, so nobody is about to write its outcome, which would have to be put off.
        """
        features, relation = connections[using].features, self._relation.field
        unfinished = self._others(using).filter(
            **{relation.attname: OuterRef(relation.target_field.attname)},
            **state_field(self.other).among(self.unfinished),
            state_claim=None,
        )
        locked = unfinished.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked, no_key=features.has_select_for_no_key_update
        )
        return locked.order_by().values("pk")[:1]

    @cached_property
    def key(self) -> str:
        """The foreign key from objects of ``other`` to ``model`` in the table of their states, if there is one."""
        return self._direct.field.name if isinstance(self._direct, ForeignObjectRel) else ""

    @property
    def _relation(self) -> Any:
        return self.model._meta.get_field(self.name)

    @cached_property
    def _direct(self) -> Any:
        """The relation if one of the two tables has the other's key; None if another table connects them."""
        relation = self._relation
        is_key = isinstance(relation, ForeignKey | ForeignObjectRel) and not relation.many_to_many
        return relation if is_key and relation.related_model is self.other else None

    @cached_property
    def reason(self) -> str:
        """What the history says of its moves."""
        return str(self.condition)

    def _exists(self, among: QuerySet[Model], states: Q) -> Exists:
        if self._apart(among.db) and self._equal:
            mine, others = self._equal
            equal = {others: OuterRef(mine), f"{others}__in": among.order_by().values(mine)}
            related = self._others(among.db).alias(stator_state=F(state_field(self.other).name)).filter(states, **equal)
            return Exists(read_first(related, (others, state_field(self.other).name)))
        field = state_field(self.other)
        # By aliases, so that a condition is one of the same related object as the others.
        rows = self._rows(among.db).filter(pk=OuterRef("pk")).alias(stator_state=F(f"{self.name}__{field.name}"))
        if field.null:
            # An unmanaged object is a related one too, and in none of the states.
            return Exists(rows.alias(stator_there=F(f"{self.name}__pk")).filter(states, stator_there__isnull=False))
        return Exists(rows.filter(states, stator_state__isnull=False))

    def _apart(self, using: str) -> bool:
        """Return whether objects and their related ones may be on different nodes."""
        return are_apart(self.model, using) or are_apart(self.other, using)

    @cached_property
    def _equal(self) -> tuple[str, str] | None:
        """The fields of an object and of its related ones that are equal; None if another table connects them."""
        relation = self._direct
        if self.key:
            return relation.field.target_field.attname, relation.field.attname
        return (relation.attname, relation.target_field.attname) if relation else None

    def _rows(self, using: str) -> QuerySet[Model]:
        return QuerySet(self.model, using=using)

    def _others(self, using: str) -> QuerySet[Model]:
        return QuerySet(self.other, using=using)


@of_graph
def watches_of(model: type[Model]) -> tuple[RelatedWatch, ...]:
    """Return the edges of a model by related objects; raise ``ImproperlyConfigured`` with one line for a wrong one."""
    return tuple(
        _watch(model, state, condition, target)
        for state in graph_of(model).states.values()
        for condition, target in state.conditions
        if isinstance(condition, AwaitedRelation)
    )


def watchers_of(model: type[Model]) -> tuple[RelatedWatch, ...]:
    """Return the edges of this or other models by objects of this model."""
    owners = [other for other in model._meta.apps.get_models() if managed_owner(other) is other]
    return tuple(watch for other in owners for watch in watches_of(other) if watch.other is model)


def _met(among: QuerySet[Model], state: State, condition: AwaitedRelation) -> Q:
    target = next(to for each, to in state.conditions if each == condition)
    return _watch(among.model, state, condition, target).met(among)


def managed_owner(model: type[Model]) -> type[Model] | None:
    """Return the model whose own table has the framework's columns; None if ``model`` is not managed."""
    return owner_of(model) if hasattr(model, "_state_field") else None


def _watch(model: type[Model], state: State, condition: AwaitedRelation, target: State) -> RelatedWatch:
    where = f"{graph_of(model).__name__}.{state.name}.{condition.kind}({condition.relation!r})"
    relations = sorted(field.name for field in model._meta.get_fields() if _is_relation(field))
    if condition.relation not in relations:
        known = f"its relations are {', '.join(relations)}" if relations else "it has none"
        raise ImproperlyConfigured(f"{where}: {model.__name__} has no such relation; {known}")
    related: Any = model._meta.get_field(condition.relation).related_model
    if (other := managed_owner(related)) is None:
        raise ImproperlyConfigured(f"{where} leads to {related.__name__}, which is not a managed model")
    for each in (model, other):
        if each._meta.is_composite_pk:
            # The subqueries over the relation select one column, and such a key has several.
            raise ImproperlyConfigured(f"{where}: {each.__name__} has a composite primary key; use waits_for or events")
    graph = graph_of(other)
    for name in condition.in_:
        if wrong := state_problem(graph, name):
            raise ImproperlyConfigured(f"{where}: {wrong}")
    unfinished = tuple(sorted(name for name in (*graph.states, *graph.renames) if name not in condition.in_))
    return RelatedWatch(model, state, target, condition, other, unfinished)


def _is_relation(field: Any) -> bool:
    return isinstance(field, ForeignKey | ForeignObjectRel) or bool(field.many_to_many)


add_edge_condition(AwaitedRelation, _met)
