"""StatorModel, the base of every managed model. ``graph`` defines what rows mean, ``db`` how they are claimed."""

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from typing import Any, ClassVar, Self
from uuid import UUID

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import models, router, transaction
from django.db.models import QuerySet
from django.db.models.base import ModelBase
from django.db.models.expressions import DatabaseDefault
from django.db.models.signals import class_prepared
from django.utils import timezone
from django.utils.functional import classproperty

import stator.extensions.options  # noqa: F401
from stator.asynchronous import awaited, in_thread
from stator.exceptions import LeaseLost
from stator.extensions.events.models import Event
from stator.extensions.limits.models import Limit
from stator.extensions.overview.models import Overview
from stator.extensions.pauses.models import Pause
from stator.extensions.problems import verbs
from stator.extensions.problems.kind import ProblemKind, add_problem_kind, differing
from stator.extensions.progress.models import Progress, progress_of
from stator.extensions.reconcile.models import Reconciled
from stator.extensions.reports.models import History, Report, reports_of
from stator.extensions.reports.reading import history_of
from stator.extensions.shadow.models import ShadowLine
from stator.extensions.stats.models import Depth, Stats
from stator.extensions.steps.models import Step, steps_of
from stator.extensions.undo.models import Before
from stator.graph import State, StateGraph
from stator.querysets import ManagedQuerySet, OperatorAccess
from stator.rows.actions import Action
from stator.rows.beginning import BEGUN, FRAMEWORK_COLUMNS, UNCOUNTED
from stator.rows.clock import Now, local_moment, local_now, moment_json, moment_text
from stator.rows.due_times import make_due
from stator.rows.fields import (
    ChangedField,
    ClaimField,
    CountField,
    LazyJSONField,
    LockedUntilField,
    MomentField,
    NextAttemptField,
    ReadyField,
    VersionField,
    fields_sent,
    text_key,
)
from stator.rows.followers import followers_of, of_writes
from stator.rows.indexes import add_indexes
from stator.rows.keys import key_fields, key_of, prepare_key, shown_key
from stator.rows.life_ends import end_lives_with_deletes, forget_left
from stator.rows.managers import manage
from stator.rows.meta import column_of, field_of, home_of, options_of, owner_of, prepare_options, written_to
from stator.rows.news import Portion, how_far
from stator.rows.problem import AdminAction, Problem, Reason
from stator.rows.records import records_of
from stator.rows.rollbacks import before_save, created, note_save, remembered
from stator.rows.spread import SPREAD, SpreadField, part_of
from stator.rows.state_column import StateField, state_field, state_name, state_of
from stator.rows.transitions import move_by_hand, move_rows, state_by_hand
from stator.rows.versions import Version
from stator.rows.wakeup import announce
from stator.rows.workers import Worker, ids_of, name_of, names_of, tokens_of, worker_of
from stator.scopes import are_apart, in_parts

__all__ = [
    "SPREAD",
    "Action",
    "AdminAction",
    "Before",  # stator.extensions.undo
    "Depth",  # stator.extensions.stats
    "Event",  # stator.extensions.events
    "History",  # stator.extensions.reports
    "LazyJSONField",
    "Limit",  # stator.extensions.limits
    "MomentField",
    "Now",
    "Overview",  # stator.extensions.overview
    "Pause",  # stator.extensions.pauses
    "Portion",
    "Problem",
    "ProblemKind",  # stator.extensions.problems
    "Progress",  # stator.extensions.progress
    "Reason",
    "Report",  # stator.extensions.reports
    "ShadowLine",  # stator.extensions.shadow
    "SpreadField",
    "State",
    "StateField",
    "StateGraph",
    "StatorModel",
    "Stats",  # stator.extensions.stats
    "Step",  # stator.extensions.steps
    "Version",
    "Worker",
    "add_problem_kind",  # stator.extensions.problems
    "are_apart",
    "column_of",
    "created",
    "differing",  # stator.extensions.problems
    "field_of",
    "history_of",  # stator.extensions.reports
    "home_of",
    "how_far",
    "ids_of",
    "in_parts",
    "key_of",
    "local_moment",
    "local_now",
    "make_due",
    "moment_json",
    "moment_text",
    "move_rows",
    "name_of",
    "names_of",
    "part_of",
    "progress_of",  # stator.extensions.progress
    "records_of",
    "remembered",
    "reports_of",  # stator.extensions.reports
    "shown_key",
    "state_field",
    "state_name",
    "state_of",
    "steps_of",  # stator.extensions.steps
    "tokens_of",
    "worker_of",
    "written_to",
]

Rows = QuerySet[models.Model] | models.Manager[models.Model]


class ManagedModel(models.Model):
    """What :class:`StatorModel` is without extensions: the columns, and what reads, saves and moves mean."""

    state_ready = ReadyField(default=True, db_default=True, editable=False)
    state_changed = ChangedField(db_default=Now(), editable=False)
    state_attempted = models.DateTimeField(null=True, blank=True, editable=False)
    state_locked_until = LockedUntilField(null=True, blank=True, editable=False)
    state_next_attempt = NextAttemptField(null=True, blank=True, editable=False)
    state_attempts = CountField(default=0, db_default=0, editable=False)
    state_failures = CountField(default=0, db_default=0, editable=False)
    state_crashes = CountField(default=0, db_default=0, editable=False)
    state_version = VersionField(default=0, db_default=0, editable=False)
    state_claim = ClaimField(null=True, blank=True, editable=False)
    state_life = models.BigIntegerField(null=True, blank=True, editable=False)
    state_visit = models.BigIntegerField(null=True, blank=True, editable=False)

    subclasses: ClassVar[list[type["StatorModel"]]] = []
    stator = OperatorAccess()
    # The values of ``state_field(model)`` and ``owner_of(model)``, stored because each insert needs them.
    # Any, because type checkers read a field of a class as its value.
    _state_field: ClassVar[Any]
    _state_owner: ClassVar[type[models.Model]]

    class Meta:
        abstract = True

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        # Values from the database come by place.
        if kwargs and self._state_field.name in kwargs:
            self._is_state_given = True

    # As of ``from_db``: it adds nothing to objects from the database.
    __init__.only_notes = True  # type: ignore[attr-defined]

    @classproperty
    def state_graph(cls) -> type[StateGraph]:  # noqa: N805
        """The graph of the model."""
        return cls._state_field.graph

    @property
    def state_age(self) -> float:
        """Seconds since the object entered its state; 0 for an object that is not saved."""
        if self._state.adding:
            return 0.0
        return (timezone.now() - self.state_changed).total_seconds()

    def transition_perform(
        self, state: State | str, *, actor: str = "", reason: str = "", start_over: bool = False
    ) -> None:
        """Move the object to ``state`` by hand, ending any claim on it; the instance shows the new state.

        A move from the state that ``fails_to`` led to, back into the state that failed, continues that visit with its
        recorded steps and idempotency keys. ``start_over``: begin a new visit.
        """
        using = home_of(self)
        rows: QuerySet[models.Model] = QuerySet(type(self), using=using).filter(pk=self.pk)
        with remembered(using, [self]):
            moved = move_by_hand(rows, state, actor=actor, reason=reason, start_over=start_over)
            self.__dict__.pop("stator", None)
            if moved:
                self._note_moved(using)

    atransition_perform = in_thread(transition_perform)

    @classmethod
    def transition_perform_queryset(
        cls, queryset: Rows, state: State | str, *, actor: str = "", reason: str = "", start_over: bool = False
    ) -> int:
        """Move every object of a queryset, or of a manager, to ``state`` by hand; return how many.

        ``start_over``: as of :meth:`transition_perform`.
        """
        rows = queryset if isinstance(queryset, QuerySet) else queryset.all()
        return move_by_hand(rows, state, actor=actor, reason=reason, start_over=start_over)

    @classmethod
    @awaited
    async def atransition_perform_queryset(
        cls, queryset: Rows, state: State | str, *, actor: str = "", reason: str = "", start_over: bool = False
    ) -> int:
        """Run :meth:`transition_perform_queryset` in a thread, for async code."""
        move = sync_to_async(cls.transition_perform_queryset)
        return await move(queryset, state, actor=actor, reason=reason, start_over=start_over)

    explain = verbs.explain  # stator.extensions.problems
    aexplain = verbs.aexplain  # stator.extensions.problems

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[object], **kwargs: Any) -> Self:
        instance = super().from_db(db, field_names, values, **kwargs)
        instance._note_loaded()
        return instance

    # Claimed rows are loaded without calling this method, since all it adds is to note the values. An override in a
    # project lacks this mark, so it is called.
    from_db.__func__.only_notes = True  # type: ignore[attr-defined]

    def get_deferred_fields(self) -> set[str]:
        """Return the names of the fields that were not read; JSON that a claim has left as text was."""
        return {name for name in super().get_deferred_fields() if text_key(name) not in self.__dict__}

    def refresh_from_db(  # type: ignore[override]
        self,
        using: str | None = None,
        fields: Collection[str] | None = None,
        from_queryset: QuerySet[Self] | None = None,
    ) -> None:
        if from_queryset is None and self._meta.base_manager_name:
            # The manager may hide the row, for instance because of its new state.
            from_queryset = QuerySet(type(self), using=using, hints={"instance": self})
        super().refresh_from_db(using, fields, from_queryset)
        self._note_loaded(fields)

    @classmethod
    def _notes_more(cls) -> bool:
        """Return whether objects note more of what was loaded than their states."""
        return False

    def _note_loaded(self, names: Collection[str] | None = None) -> None:
        # Django also reads a deferred column, when an assigned state may not be saved yet.
        if names is None or self._state_field.name in names:
            self._loaded_state = self._state_field.loaded(self)

    def _begin(self) -> None:
        """Reset the framework's columns of a copied instance before it is inserted."""
        values = self.__dict__
        if values.get("_loaded_state") is not None:
            values["state_changed"] = field_of(type(self), "state_changed").get_default()
            values.update(BEGUN)
        values.update(UNCOUNTED)
        values.pop("stator", None)

    def save_base(
        self,
        raw: bool = False,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        using = using or router.db_for_write(type(self), instance=self)
        before = before_save(using, self)
        try:
            if not (raw or force_insert) and "_loaded_state" not in self.__dict__:
                self._note_row(using, force_update, update_fields)
            super().save_base(raw, force_insert, force_update, using, update_fields)
        finally:
            if before is not None:
                note_save(using, self, before)

    save_base.alters_data = True  # type: ignore[attr-defined]

    def _do_insert(
        self,
        manager: models.Manager[models.Model],
        using: str,
        fields: list[models.Field],
        returning_fields: list[models.Field],
        raw: bool,
    ) -> object:
        owner = self._state_owner
        # ``loaddata`` saves raw: its rows are inserted unchanged.
        if not raw and manager.model is owner:
            self._begin()
            fields = fields_sent(type(self), [self], fields, using)
            _leave_unread(fields, returning_fields)
        inserted = super()._do_insert(manager, using, fields, returning_fields, raw)  # type: ignore[misc]
        if not raw and manager.model is owner and self.state_life is not None:
            forget_left(owner, using, [self])
        self._note_loaded()
        if self.state_ready:
            announce(owner, using)
        return inserted

    def _do_update(
        self,
        base_qs,
        using,
        pk_val,
        values,
        *args,
        **kwargs,
    ):
        """Write the project's own columns only; a changed ``state`` is a move by hand in the same transaction."""
        # Without types, because Django's own method has other ones in each version.
        given = {field.name: value for field, _, value in values}
        if given.get("state_changed") is not None:
            # Only a fixture has this value, and all columns of its rows are loaded as they are.
            updated = super()._do_update(base_qs, using, pk_val, values, *args, **kwargs)
            return self._is_loaded(using, updated)
        names = set(given)
        own = [value for value in values if _is_own(value[0])]
        if self._is_left:
            # Other code moves the object, by a plain write.
            own += [value for value in values if isinstance(value[0], StateField)]
            written = super()._do_update(base_qs, using, pk_val, own, *args, **kwargs)
            if written:
                self._loaded_state = self._state_field.loaded(self)
            return written
        claim: UUID | None = getattr(self.__dict__.get("stator"), "token", None)
        rows = base_qs if claim is None else self._claimed(base_qs, claim)
        moving = self._state_field.name in names and self._is_moving
        if moving:
            state_by_hand(type(self), getattr(self, self._state_field.attname))
        followers = of_writes(self._state_owner, names) if claim is None else []
        # A save is nearly always one statement, which needs no transaction and so no further round trips.
        with transaction.atomic(using=using, savepoint=False) if moving or followers else nullcontext():
            written = super()._do_update(rows if own else base_qs, using, pk_val, own, *args, **kwargs)
            if claim is not None and own and not written:
                raise LeaseLost(f"{self._meta.label} {pk_val}: the claim on it has ended; this save changed nothing")
            moved = moving and written and self._move_on_save(rows.using(using).filter(pk=pk_val))
            for follower in followers if written and not moved else ():
                follower.written(self._mine(using))
        return written

    def _mine(self, using: str) -> QuerySet[models.Model]:
        return QuerySet(self._state_owner, using=using).filter(pk=self.pk)

    def _is_loaded(self, using: str, updated: object) -> object:
        if updated and self.state_ready:
            announce(self._state_owner, using)
        self._note_loaded()
        return updated

    def _note_moved(self, using: str) -> None:
        """Read the state and its columns after a move by hand or an event."""
        self.refresh_from_db(using, fields=[self._state_field.name, *sorted(FRAMEWORK_COLUMNS)])

    def _claimed(self, base_qs: QuerySet[Self], claim: UUID) -> QuerySet[Self]:
        """Return the rows that the claim may write.

        Under multi-table inheritance a plain parent's table has no claim column, so the row with the claim is checked.
        """
        owner = self._state_owner
        if issubclass(base_qs.model, owner):
            return base_qs.filter(state_claim=claim)
        mine: QuerySet[models.Model] = QuerySet(owner, using=base_qs.db).filter(pk=self.pk, state_claim=claim)
        return base_qs if mine.exists() else base_qs.none()

    def _note_row(self, using: str, force_update: bool, names: Iterable[str] | None) -> None:
        """Note the state of the row that an object with its key, which was not loaded, may overwrite with another.

        A state that is only the default overwrites none. Nor does a copy of all columns, such as an old record.
        """
        field, values = self._state_field, self.__dict__
        given = values.get("_is_state_given") or field.stored(values.get(field.attname)) != field.get_default()
        if not given or not isinstance(values.get("state_changed"), DatabaseDefault):
            return
        keys = key_fields(type(self))
        # Django inserts it then, whether there is such a row or not.
        has_default = all(each.has_default() or each.has_db_default() for each in keys)
        if self._state.adding and has_default and not force_update:
            return
        if any(getattr(self, each.attname) is None for each in keys):
            return
        if names is None or field.name in names:
            for row in self._mine(using).only(field.name):
                self._loaded_state = field.loaded(row)

    @property
    def _is_moving(self) -> bool:
        """Whether another state was assigned since the object was loaded."""
        return self.__dict__.get("_loaded_state") not in (None, self._state_field.loaded(self))

    @property
    def _is_left(self) -> bool:
        """Whether other code writes the state with the next save."""
        field = self._state_field
        between = self.__dict__.get("_loaded_state"), field.loaded(self)
        return field.is_left or (self._is_moving and field.are_left(*between))

    def _move_on_save(self, row: QuerySet[models.Model]) -> bool:
        field = self._state_field
        state = getattr(self, field.attname)
        if not move_by_hand(row, state) and "stator" in self.__dict__:
            raise LeaseLost(f"{self._meta.label} {self.pk}: the claim on it has ended; it was not moved")
        self.__dict__.pop("stator", None)
        self._loaded_state = field.stored(state)
        return True


class StatorModel(
    Reconciled,  # stator.extensions.reconcile
    ManagedModel,
):
    """A model whose objects workers move from state to state.

    A subclass adds ``state = StateField(Graph)``, or has it under another name. Ordinary saves never write the
    framework's columns. To move an object by hand, assign a state and save it. While a worker attempts the object,
    ``instance.stator`` is its claim; once that has ended, ``save()`` raises
    :class:`~stator.exceptions.LeaseLost`.
    """

    class Meta:
        abstract = True


def _leave_unread(sent: list[models.Field], returning: list[models.Field]) -> None:
    """Keep Django 6 from reading ``state_changed`` back from an insert: see ``MomentAttribute``."""
    for field in [field for field in returning if field.name == "state_changed" and field not in sent]:
        # The list is changed in place, because Django assigns the returned values to its fields.
        returning.remove(field)


def _is_own(field: models.Field) -> bool:
    """Return whether ``save()`` writes a field; a row stays in its part, whatever the instance says."""
    return field.name not in FRAMEWORK_COLUMNS and not isinstance(field, StateField | SpreadField)


def _prepare(sender: type, **kwargs: object) -> None:
    """Manage, index and register a model when its class is made; not called for abstract classes."""
    if not issubclass(sender, StatorModel):
        return
    fields = [field for field in sender._meta.concrete_fields if isinstance(field, StateField)]
    if not fields:
        return
    sender._state_field = fields[0]
    manage(sender, ManagedQuerySet)
    sender._state_owner = owner_of(sender)
    if sender._state_owner is not sender:
        return
    spread = options_of(sender).spread
    if spread and not any(spread in (field.name, field.attname) for field in sender._meta.concrete_fields):
        SpreadField().contribute_to_class(sender, spread)
    prepare_key(sender)
    add_indexes(sender)
    prepare_options(sender)
    if sender._meta.apps is apps:
        StatorModel.subclasses.append(sender)
    # It may wait for objects of a model that has been used.
    followers_of.cache_clear()


class_prepared.connect(_prepare)
end_lives_with_deletes()
