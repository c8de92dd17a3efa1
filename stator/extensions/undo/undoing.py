"""Undo of manual actions: objects that nobody has touched since go back to what they were."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import BigIntegerField, F, Model, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast
from django.db.models.lookups import IsNull

from stator.conf import load_settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.db.repeat import retried
from stator.extensions.undo.models import UNDONE_WITHIN, Before, remember
from stator.graph.durations import seconds_of, span
from stator.graph.states import State
from stator.rows import columns
from stator.rows.actions import Action
from stator.rows.clock import Now
from stator.rows.followers import HandAct, by_hand, followers_of, moved
from stator.rows.keys import key_of, key_text, shown_text
from stator.rows.life import continued
from stator.rows.locking import Locked, lock_rows, most_keys
from stator.rows.meta import field_of, graph_of, model_of
from stator.rows.record_tables import RECORD_TABLES, TakingBack
from stator.rows.state_column import StateField, state_field
from stator.rows.transitions import tell_moves
from stator.rows.wakeup import announce
from stator.scopes import are_apart, read_first
from stator.statements import is_one_of
from stator.texts import one_line

# Objects per transaction. Only objects that nobody has are locked, so there may be more of them than in a move. The
# undo of 20,000 took 0.6 of the time that it takes with 1,000.
BATCH = 2500

# Objects that are named because they were left alone; further ones are counted.
MAX_NAMED = 100_000

# The columns that come back, by the field that has them; the second ones only if the action moved the objects.
RESTORED = {
    "state_ready": "ready", "state_next_attempt": "due", "state_failures": "failures", "state_crashes": "crashes",
}  # fmt: skip
MOVED_BACK = {
    "state_changed": "changed", "state_attempted": "attempted", "state_attempts": "attempts",
}  # fmt: skip


class Was(NamedTuple):
    """What an object was before the action; of its times, only whether it had them.

    A time without a zone may be ambiguous, so no time leaves the database.
    """

    pk: int
    object_pk: str
    version: int
    tried: int
    state: str
    visit: int | None
    ready: bool
    attempts: int
    failures: int
    crashes: int
    changed: bool
    attempted: bool
    due: bool


TIMES = ("changed", "attempted", "due")
_OF_WAS = [IsNull(F(name), False) if name in TIMES else name for name in Was._fields]

# The locked objects that go back, by what they were.
Going = Mapping[Was, Locked]


@dataclass(slots=True)
class Undone:
    """What came of an undo: its own ``action``, how many objects are as before, and why others were ``left``, by key.

    ``unnamed``: how many more were left. ``rest``: the key after which a further part goes on; empty at the end.
    """

    action: Action
    count: int = 0
    left: dict[str, str] = field(default_factory=dict)
    unnamed: int = 0
    rest: str = ""

    def leave(self, key: str, why: str) -> None:
        """Note that an object was left alone."""
        if len(self.left) < MAX_NAMED:
            self.left[key] = why
        else:
            self.unnamed += 1


@dataclass(frozen=True, slots=True)
class UndoPart:
    """A part of an undo: so many ``batches`` after a key, as of the undo with the number ``action``; 0 begins one.

    ``among``: narrows objects to the ones that the actor may change; all by default.
    """

    batches: int | None = None
    after: str = ""
    action: int = 0
    among: Callable[[QuerySet[Model]], QuerySet[Model]] | None = None


ALL = UndoPart()


def undo(
    pk: int, using: str, *, actor: str, reason: str, progress: Callable[[int], None] | None = None, part: UndoPart = ALL
) -> Undone:
    """Undo the action with this number: objects that nobody has touched since go back; the others are named.

    An object is untouched if no attempt has begun, nobody has moved it, and nothing has made it due. It gets the state,
    attempts, errors and due time that it had; where an attempt was cut off, it is due when that lease would have ended.
    Batches are transactions of their own, so what an interrupted undo has left, the next one does. Raise ``ValueError``
    with one line if there is nothing to undo. ``progress`` is called with the number of objects so far. ``part``: do
    only a part of it.
    """
    action = Action.objects.using(using).filter(pk=pk).annotate(age=Now() - F("at")).first()
    if action is None:
        raise ValueError(f"there is no action {pk}; stator undo without a number lists those of the last hour")
    if (age := seconds_of(action.age)) > UNDONE_WITHIN:
        raise ValueError(f"action {pk} was {span(age)} ago; an action can be undone for {span(UNDONE_WITHIN)}")
    if (model := model_of(action.model_label)) is None:
        raise ValueError(f"action {pk} is about {action.model_label}, which this code does not have")
    given = {"undoes": pk, "actor": actor[:150]}
    begun = Action.objects.using(using).filter(pk=part.action, **given).first() if part.action else None
    own = begun or Action.of(model, "undo", actor, reason, moves=action.moves, undoes=pk)
    own.progress = progress
    done = Undone(own)
    _Undoing(model, using, action, done, part).all()
    if not done.rest:
        for table in RECORD_TABLES:
            if table.undo is not None:
                done.count += table.undo(model, using, TakingBack(action, own, done.leave, part.among))
    return done


@dataclass(frozen=True, slots=True)
class _Undoing:
    """The undo of one action on the objects of ``model``."""

    model: type[Model]
    using: str
    action: Action
    done: Undone
    part: UndoPart

    def all(self) -> None:
        """Undo it in batches, or a part of them."""
        operations = operations_for(self.model, load_settings(), new_worker_id(), self.using)
        some = retried(operations, self._batch)
        for number, page in enumerate(self._pages(self.part.after)):
            if number == self.part.batches:
                return
            self._part(some, page)
            self.done.rest = page[-1].object_pk
        self.done.rest = ""

    def _part(self, some: Callable[[list[Was]], Collection[object]], page: list[Was]) -> None:
        """Undo a batch; if the database refuses it, find the rows that it refuses."""
        try:
            back = some(page)
        except IntegrityError as error:
            if len(page) == 1:
                self._leave(page[0], f"is refused: {one_line(error)}")
                return
            half = len(page) // 2
            self._part(some, page[:half])
            self._part(some, page[half:])
            return
        self.done.count += len(back)
        if left := [row for row in page if row.object_pk not in back]:
            self._name(left)

    def _pages(self, last: str) -> Iterator[list[Was]]:
        # By the one index that begins with the action: its statistics may be older than all of the rows.
        rows, size = self._before.values_list(*_OF_WAS), most_keys(self.model, BATCH)
        while page := [Was(*values) for values in (rows.filter(object_pk__gt=last) if last else rows)[:size]]:
            yield page
            last = page[-1].object_pk

    def _batch(self, page: list[Was]) -> set[str]:
        """Let the untouched objects of a page go back; return their keys."""
        states, rows = graph_of(self.model).states, self._rows
        known = {was.object_pk: was for was in page if was.state in states}
        keys = [key for text in known if (key := self._key(text)) is not None]
        with transaction.atomic(using=self.using):
            locked = lock_rows(rows, self.model, self.using, self._allowed(keys), self._at_rest())
            going = {known[str(row.pk)]: row for row in locked if _as_left(known[str(row.pk)], row)}
            again, since = set(self._changed_again(going)), self._since(going)
            for before in [each for each in going if each in again or each.object_pk in since]:
                del going[before]
            stays = self._stays([row.pk for row in going.values()])
            going = {before: row for before, row in going.items() if row.pk not in stays}
            if not going:
                return set()
            back = rows.filter(is_one_of(rows, [row.pk for row in going.values()]))
            self.done.action.add(self.using, len(going))
            remember(self.done.action, back, self._of("attempts", going) if self.action.moves else None)
            self._keep_history(going)
            back.update(**self._changes(going))
            self._follow(going)
            mine = self._before.filter(object_pk__gte=page[0].object_pk, object_pk__lte=page[-1].object_pk)
            mine.filter(is_one_of(mine, [before.pk for before in going])).delete()
        return {before.object_pk for before in going}

    def _at_rest(self) -> Q:
        """Return a condition for rows that nobody has, and that nothing has made due."""
        at_rest = Q(state_claim=None) & ~Q(state_ready=True, state_next_attempt=None)
        if self.action.moves and self.action.undoes is None:
            # A claim that was handed back is no attempt, and yet somebody had the row.
            at_rest &= Q(state_attempted=None)
        return at_rest

    def _changed_again(self, going: Going) -> list[Was]:
        """Return the locked objects that later actions have changed."""
        label, own = self.action.model_label, self.done.action.pk
        later = Action.objects.using(self.using).filter(model_label=label, pk__gt=self.action.pk).exclude(pk=own)
        keys = [before.object_pk for before in going]
        again = Before.objects.using(self.using).filter(action__in=later.values("pk"), object_pk__in=keys)
        changed = set(again.values_list("object_pk", flat=True))
        return [before for before in going if before.object_pk in changed]

    def _since(self, some: Collection[Was]) -> dict[str, str]:
        """Return the keys of the objects of which something was written since the action, each with what it was."""
        keys, since = [before.object_pk for before in some], self.action.at
        asked = [table.since for table in RECORD_TABLES if table.since is not None]
        return {key: why for each in asked for key, why in each(self.model, self.using, keys, since).items()}

    def _stays(self, keys: list[object]) -> Mapping[object, str]:
        """Return the objects that a follower lets no undo move, each with the reason."""
        if not self.action.moves:
            return {}
        rows = self._rows.filter(is_one_of(self._rows, keys))
        with transaction.atomic(using=self.using):
            return {pk: why for each in followers_of(self.model) for pk, why in each.staying(rows).items()}

    def _allowed(self, keys: list[object]) -> list[object]:
        """Return the keys of the objects that the actor may change."""
        if self.part.among is None:
            return keys
        return list(self.part.among(self._rows.filter(pk__in=keys)).values_list("pk", flat=True))

    def _keep_history(self, going: Going) -> None:
        """Write that objects go back, before they do."""
        own = self.done.action
        reason = f"undid action {self.action.pk}{': ' * bool(own.reason)}{own.reason}"
        if not self.action.moves:
            act = HandAct(actor=own.actor, reason=reason, recorded=True)
            by_hand(self._rows, [row.pk for row in going.values()], act)
            return
        for target, some in self._by_target(going):
            by_hand(self._rows, [row.pk for row in some], HandAct(target=target, actor=own.actor, reason=reason))

    def _follow(self, going: Going) -> None:
        """Do what follows when objects have gone back: events, and whoever waited for the state."""
        model, using = self.model, self.using
        if not self.action.moves:
            announce(model, using)
            return
        for target, some in self._by_target(going):
            moved(model, using, target.name, [row.pk for row in some], some)
            tell_moves(model, using, some, target)
        for follower in followers_of(model):
            follower.went_back(self._rows.filter(pk__in=[row.pk for row in going.values()]))

    def _by_target(self, going: Going) -> Iterator[tuple[State, list[Locked]]]:
        """Yield each state that objects go back to, with these objects."""
        for name in dict.fromkeys(before.state for before in going):
            some = [row for before, row in going.items() if before.state == name]
            yield graph_of(self.model).states[name], some

    def _name(self, left: list[Was]) -> None:
        """Note why each of these objects was left alone."""
        keys = {row.object_pk: self._key(row.object_pk) for row in left}
        known = [key for key in keys.values() if key is not None]
        there = self._rows.filter(is_one_of(self._rows, known))
        field = state_field(self.model)
        now = {str(pk): values for pk, *values in there.values_list("pk", field.name, "state_version", "state_claim")}
        allowed, stays = set(map(str, self._allowed(known))), {str(pk): why for pk, why in self._stays(known).items()}
        since = self._since(left)
        for row in left:
            if row.object_pk in now and row.object_pk not in allowed:
                self._leave(row, "is not yours to change")
                continue
            if row.object_pk in since and row.object_pk in now and now[row.object_pk][1] == row.version:
                self._leave(row, since[row.object_pk])
                continue
            why = stays.get(row.object_pk) or _why(row, now.get(row.object_pk), field)
            self._leave(row, why)

    def _changes(self, going: Going) -> columns.Changes:
        restored: columns.Changes = {column: self._of(name, going) for column, name in RESTORED.items()}
        if self.action.moves:
            field = state_field(self.model)
            restored[field.name] = field.of_name(self._of("state", going))
            restored |= {column: self._of(name, going) for column, name in MOVED_BACK.items()}
        version: columns.Changes = {"state_version": F("state_version") + 1} if self.action.moves else {}
        visit: columns.Changes = {}
        if self.action.moves:
            visit = continued(2, Cast(self._of("visit", going), BigIntegerField()), F("state_version") - 1)
        return visit | restored | version

    def _of(self, name: str, going: Going) -> Value | Subquery:
        """Return what the rows were before the action: one value if all had the same, else each row's own."""
        field = field_of(Before, name)
        first, *others = {getattr(before, name) for before in going}
        if not others and not (name in TIMES and first):
            return Value(None if name in TIMES else first, output_field=field)
        before = self._before.filter(object_pk=key_text(self.model, self.using))
        if are_apart(self.model, self.using):
            before = read_first(before, ("action", "object_pk", name))
        return Subquery(before.values(name)[:1])

    @property
    def _before(self) -> QuerySet[Before]:
        return Before.objects.using(self.using).filter(action=self.action.pk).order_by("action", "object_pk")

    @property
    def _rows(self) -> QuerySet[Model]:
        return QuerySet(self.model, using=self.using)

    def _leave(self, row: Was, why: str) -> None:
        self.done.leave(shown_text(self.model, row.object_pk), why)

    def _key(self, text: str) -> object:
        """Return a key from its text; None if it is of another type, from before a migration."""
        try:
            return key_of(self.model, text)
        except ValidationError:
            return None


def _as_left(before: Was, row: Locked) -> bool:
    """Return whether nobody has moved or attempted a row since the action."""
    return (before.version, before.tried) == (row.version, row.attempts)


def _why(was: Was, now: Sequence[object] | None, field: StateField) -> str:
    """Return why an object was left alone. ``now``: what is stored for its state, version and claim; None if gone."""
    if now is None:
        return "is gone"
    state, version, claim = field.name_of(now[0]), *now[1:]
    if claim is not None:
        return f"is being attempted in {state}"
    if version != was.version:
        return f"is in {state} now"
    if was.state not in field.graph.states:
        return f"was in {was.state}, which is no state of the graph"
    return "was attempted or made due since"
