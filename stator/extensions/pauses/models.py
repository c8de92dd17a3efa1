"""Pauses as rows: objects that workers leave alone for a while because people want it."""

import logging
from collections.abc import Callable, Iterable, Sequence

from django.db import models, transaction
from django.db.models import Model, Q, QuerySet

from stator.graph.options import is_seconds
from stator.graph.states import State
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.clock import Now, moment_json
from stator.rows.fields import MomentField
from stator.rows.keys import shown_key
from stator.rows.lookups import check_lookups, try_lookups
from stator.rows.meta import named_state, owner_of
from stator.rows.record_tables import Keys, RecordTable, TakingBack, add_record_table
from stator.rows.records import REASON_LENGTH
from stator.rows.state_column import state_field
from stator.rows.unlocks import Hold, add_hold

logger = logging.getLogger("stator.pauses")

# The most pauses that workers read; a project with more needs a column and a condition instead.
MAX_PAUSES = 1000

# The lookup of a pause that names objects, and how many it may name: each claim compares them all.
NAMED, MAX_OBJECTS = "pk__in", 40

# The most objects of a pause that are examined for whether somebody may resume them.
MAX_EXAMINED = 1000


def in_force() -> Q:
    """Return a condition for the pauses in force now, by the database's clock."""
    return Q(until=None) | Q(until__gt=Now())


class PauseQuerySet(QuerySet["Pause"]):
    """Rows of the table of pauses."""

    def active(self) -> "PauseQuerySet":
        """Return the pauses in force now, by the database's clock."""
        return self.filter(in_force())


class Pause(models.Model):
    """Objects of one model that workers leave alone until ``until``, or until somebody resumes them.

    ``state``: empty for all states. ``where``: values of fields that an object must have, or the keys of objects; empty
    for all objects. Only the end of a pause is ever changed.
    """

    model_label = models.CharField(max_length=200)
    state = models.CharField(max_length=100, blank=True)
    where = models.JSONField(default=dict, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    actor = models.CharField(max_length=150, blank=True)
    created = MomentField(db_default=Now())
    until = models.DateTimeField(null=True, blank=True)
    # The manual action that made it, and that undoes it; null if nobody can.
    action = models.BigIntegerField(null=True, editable=False)

    objects = PauseQuerySet.as_manager()

    class Meta:
        app_label = "stator"
        # Every poll counts the pauses in force, and every claim of a program checks for pauses of its model: with the
        # key, the index alone answers both.
        indexes = [models.Index(fields=["model_label", "until", "id"], name="stator_pause_in_force")]

    def __str__(self) -> str:
        return f"{self.model_label}{f' in {self.state}' if self.state else ''}{f' {self.where}' if self.where else ''}"

    @property
    def names(self) -> list[object] | None:
        """The keys of the objects that it names; None if it holds others, too."""
        named = self.where.get(NAMED) if self.where.keys() == {NAMED} else None
        return [_kept(pk) for pk in named] if isinstance(named, list) else None

    def trouble(self, model: type[Model]) -> str:
        """Return why ``where`` cannot be evaluated, as one line; empty if it can."""
        try:
            check_where(model, self.where)
        except ValueError as error:
            return f"holds all objects of its states, because it cannot be evaluated: {error}"
        return ""

    def condition(self, model: type[Model]) -> Q:
        """Return a condition for the rows that it holds; any row of its states if ``where`` cannot be evaluated."""
        if trouble := self.trouble(model):
            logger.warning("stator.pause_unclear", extra={"model": self.model_label, "error": trouble})
            return Q()
        return Q(**self.where)


def planned_pause(
    model: type[Model],
    using: str,
    *,
    state: State | str | int | None,
    where: object,
    reason: str,
    actor: str,
    seconds: float | None,
) -> Pause:
    """Return a pause for :func:`keep_pause`; raise ``ValueError`` with one line if the arguments are invalid."""
    if seconds is not None and not is_seconds(seconds):
        raise ValueError(f"seconds={seconds!r} must be a number above 0 and below a hundred years, or None")
    owner = owner_of(model)
    where = check_where(owner, where)
    try_lookups(owner, using, where)
    if Pause.objects.using(using).active().count() >= MAX_PAUSES:
        raise ValueError(
            f"workers read at most {MAX_PAUSES:,} pauses, and so many are active; end some, or pause by a column"
        )
    return Pause(
        model_label=owner._meta.label_lower,
        state="" if state in (None, "") else named_state(owner, state).name,
        where=where,
        reason=reason[:REASON_LENGTH],
        actor=actor[:150],
        until=None if seconds is None else columns.after(seconds),
    )


def keep_pause(pause: Pause, using: str, action: Action | None = None) -> Pause:
    """Save a planned pause, which workers then obey. ``action``: the action that makes it."""
    if action is not None:
        action.add(using, 1)
        pause.action = action.pk
    pause.save(using=using)
    pause.refresh_from_db(using=using)
    logger.info("stator.paused", extra={"model": pause.model_label, "state": pause.state, "actor": pause.actor})
    return pause


def described(pause: Pause) -> dict[str, object]:
    """Return a pause as a dictionary for JSON."""
    moments = {name: at and moment_json(at) for name in ("created", "until") for at in [getattr(pause, name)]}
    further = {name: getattr(pause, name) for name in ("state", "where", "reason", "actor")}
    return {"id": pause.pk, "model": pause.model_label, **further, **moments}


def replace_pauses(pauses: QuerySet["Pause"], changes: dict[str, str]) -> None:
    """Write changed copies of the active pauses in their place: workers notice new pauses, and no changed ones."""
    with transaction.atomic(using=pauses.db):
        for pause in pauses.filter(in_force()).order_by("pk")[:MAX_PAUSES]:
            pause.delete()
            vars(pause).update(changes, id=None)
            pause.save(using=pauses.db, force_insert=True)


def end_pauses(model: type[Model], using: str, *, state: State | str | int | None, where: object, actor: str) -> int:
    """End active pauses of a model: all, or only pauses with exactly this state and condition; return how many."""
    owner = owner_of(model)
    label = owner._meta.label_lower
    active = Pause.objects.using(using).active().filter(model_label=label)
    # The graph may have lost the state of a pause.
    name = str(state_field(owner).find(state) or state)
    # Lookups, which former releases took: such a pause is ended by naming them.
    wanted = None if where is None else check_lookups(owner, where)
    meant = [
        pause.pk
        for pause in active.order_by("pk")[:MAX_PAUSES]
        if (state is None or pause.state == name) and (wanted is None or pause.where == wanted)
    ]
    return end_chosen(active.filter(pk__in=meant), label, actor)


def end_chosen(pauses: QuerySet["Pause"], label: str, actor: str) -> int:
    """End the active ones among these pauses of one model; return how many."""
    ended = pauses.filter(in_force()).update(until=Now())
    logger.info("stator.resumed", extra={"model": label, "count": ended, "actor": actor})
    return ended


def pause_objects(
    model: type[Model], using: str, pks: Sequence[object], action: Action, seconds: float | None = None
) -> Pause:
    """Pause some objects by key, for the reason and as the actor of an action.

    Raise ``ValueError`` with one line if they are too many for one pause.
    """
    if len(pks) > MAX_OBJECTS:
        raise ValueError(f"a pause names at most {MAX_OBJECTS} objects; pause a state instead, or the value of a field")
    where = {NAMED: [_kept(pk) for pk in pks]}
    why = {"reason": action.reason, "actor": action.actor}
    return keep_pause(planned_pause(model, using, state=None, where=where, seconds=seconds, **why), using, action)


def resume_objects(model: type[Model], using: str, pks: Iterable[object], *, actor: str) -> int:
    """Release objects from pauses that name them; return how many objects were released, each counted once.

    Pauses of the model, of a state, or of values stay. The other objects of a pause get a pause of their own.
    """
    meant = {_kept(pk) for pk in pks}
    resumed = set[object]()
    with transaction.atomic(using=using):
        for pause in _naming_objects(model, using):
            named = pause.names or []
            if meant.intersection(named):
                resumed.update(meant.intersection(named))
                release(pause, using, [pk for pk in named if pk not in meant], actor=actor)
    return len(resumed)


def release(pause: Pause, using: str, rest: Sequence[object], *, actor: str) -> bool:
    """End a pause; if ``rest`` has some of the objects that it names, these get a pause of their own.

    Return False if the pause has ended already, or if no other object is left to release.
    """
    if rest and len(rest) == len(pause.names or ()):
        return False
    ended = end_chosen(Pause.objects.using(using).filter(pk=pause.pk), pause.model_label, actor)
    if ended and rest:
        own = {name: getattr(pause, name) for name in ("state", "reason", "actor", "until", "action")}
        keep_pause(Pause(model_label=pause.model_label, where={NAMED: [*rest]}, **own), using)
    return bool(ended)


def hidden_by(
    pause: Pause, model: type[Model], using: str, among: Callable[[QuerySet[Model]], QuerySet[Model]]
) -> list[object]:
    """Return the objects that a pause holds and ``among`` leaves out; of very many objects, the first are examined."""
    rows: QuerySet[Model] = QuerySet(model, using=using)
    states = Q(**state_field(model).at(pause.state)) if pause.state else Q()
    held = list(rows.filter(pause.condition(model), states).order_by("pk").values_list("pk", flat=True)[:MAX_EXAMINED])
    mine = set(among(rows.filter(pk__in=held)).values_list("pk", flat=True)) if held else set()
    return [_kept(pk) for pk in held if pk not in mine]


def is_paused_by_name(model: type[Model], using: str, pk: object) -> bool:
    """Return whether a pause names this object."""
    return _kept(pk) in named_in_pauses(model, using)


def release_deleted(owner: type[Model], using: str, keys: Keys) -> None:
    """Release deleted rows from pauses that name them; ``keys``: as texts, or a queryset that has these."""
    named = {str(pk): pk for pk in named_in_pauses(owner, using)}
    if isinstance(keys, QuerySet):
        keys = list(keys.filter(stator_key__in=list(named)).values_list("stator_key", flat=True)) if named else []
    if gone := [pk for text, pk in named.items() if text in set(keys)]:
        resume_objects(owner, using, gone, actor="")


def end_made(model: type[Model], using: str, taking: TakingBack) -> int:
    """End the pauses that an action made, for objects that the actor may change; name the ones that stay."""
    made, ended = Pause.objects.using(using).filter(action=taking.action.pk), 0
    with transaction.atomic(using=using):
        for pause in made.order_by("pk"):
            hidden = hidden_by(pause, model, using, taking.among) if taking.among else []
            if hidden and pause.names is None:
                taking.leave(f"pause {pause.pk}", "holds objects that are not yours to change")
                continue
            for pk in hidden:
                taking.leave(shown_key(pk), "is not yours to change")
            if release(pause, using, hidden, actor=taking.by.actor):
                taking.by.add(using, 1)
                ended += 1
            elif not hidden:
                taking.leave(f"pause {pause.pk}", "has ended")
    return ended


def named_in_pauses(model: type[Model], using: str) -> list[object]:
    """Return the keys of the objects that pauses name, as the pauses keep them."""
    return [_kept(pk) for pause in _naming_objects(model, using) for pk in pause.where[NAMED]]


def _naming_objects(model: type[Model], using: str) -> list[Pause]:
    label = owner_of(model)._meta.label_lower
    own = Pause.objects.using(using).active().filter(model_label=label).order_by("pk")[:MAX_PAUSES]
    return [pause for pause in own if pause.names is not None]


def _kept(pk: object) -> object:
    """Return a primary key as a JSON value; a composite one may have been read from it, as a list."""
    if isinstance(pk, list | tuple):
        return tuple(map(_kept, pk))
    return pk if isinstance(pk, int) else str(pk)


def check_where(model: type[Model], where: object) -> dict[str, object]:
    """Return the values of a pause as JSON; raise ``ValueError`` with one line if it is not about fields of the model.

    Values of columns are all that each claim of every worker can afford to compare.
    """
    kept, meta = check_lookups(model, where), model._meta
    own = {"pk", NAMED, *(name for field in meta.concrete_fields for name in (field.name, field.attname))}
    if others := [name for name in kept if name not in own]:
        raise ValueError(
            f"where={{{others[0]!r}: ...}}: a pause compares fields of {meta.label} with values, as {{'tenant': 3}}; "
            "for other rules pause a state, name the objects with pk__in, or declare claimable in StatorMeta"
        )
    return kept


add_record_table(
    RecordTable(
        model=Pause, privileges=("SELECT", "DELETE"), aged="until", kept="workers", of_life=True, marked=False,
        present=in_force, end=release_deleted, rewrite=replace_pauses, undo=end_made,
    )
)  # fmt: skip
add_hold(
    Hold(
        name="pause", done="paused", most=MAX_OBJECTS, keep=pause_objects,
        summary="Also pause the objects, so that none is claimed again.",
    )
)  # fmt: skip
