"""Events that people and programs send to objects: who may, what it does, and the refusals, each one sentence."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import router
from django.db.models import Model, QuerySet
from django.forms import BaseForm, ModelChoiceField

from stator.conf import load_settings
from stator.exceptions import EventRefused
from stator.extensions.events.edges import AwaitedEvent
from stator.extensions.events.models import EVENT_KEY_LENGTH, Event, events_of, events_of_visit
from stator.extensions.events.senders import Sender, sender_of
from stator.graph.states import State
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.followers import HandAct, by_hand
from stator.rows.keys import shown_key
from stator.rows.locking import Locked, in_batches
from stator.rows.meta import graph_of, owner_of
from stator.rows.transitions import entering_from, move_locked
from stator.rows.wakeup import announce
from stator.texts import bounded, json_text, text_problem

logger = logging.getLogger("stator.events")

# The most levels of lists and objects in a payload: MariaDB stores no more than 31.
PAYLOAD_DEPTH = 30

# The kind of the acts of events.
EVENT = "event"

ENCODER = DjangoJSONEncoder(allow_nan=False, ensure_ascii=False)

# How many events this process has refused, by model and event; a name that no graph has is "unknown".
refusals: Counter[tuple[str, str]] = Counter()


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of an event.

    ``outcome``: ``moved`` the object, made it ``ready``, was ``counted`` while ``missing`` more senders are needed, was
    ``kept`` until the object enters a state that waits for it, was ``repeated``: its sender has used the key, and
    nothing changed, or ``withdrawn`` by its sender. ``note``: a sentence if the repeated event
    had another payload than the first.
    """

    outcome: str
    event: Event
    missing: int = 0
    note: str = ""


def send(
    model: type[Model],
    pk: object,
    name: str,
    payload: object = None,
    *,
    by: object = None,
    key: str = "",
    reason: str = "",
    using: str | None = None,
    visit: tuple[int, int] | None = None,
) -> Sent:
    """Send an event to an object; raise :class:`EventRefused`, with nothing changed, if it is not taken.

    ``by``: the user who sends it; anything else, such as the name of a program, becomes a :class:`~stator.Sender`.
    ``key``: an event with a key that its sender has used for the object is not taken again.
    ``reason``: stored in the history. ``visit``: the numbers of the life and of the visit for which alone it is meant.
    """
    owner = owner_of(model)
    using = using or router.db_for_write(owner)
    request = _Request(owner, pk, name, payload, sender_of(by), key, reason, visit)
    taken: list[Sent] = []

    def take(alias: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        # The key as the database has it: the caller may name it by a text of its own.
        taken.append(replace(request, pk=before[0].pk).take(alias, rows, before[0]))
        return 1

    try:
        in_batches(QuerySet(owner, using=using).filter(pk=pk), take)
        if not taken:
            which = f"{owner._meta.label} {shown_key(pk)}"
            unsaved = f"{which} is not saved yet; call save() before you send it an event"
            raise EventRefused(unsaved if pk is None else f"{which} does not exist")
    except EventRefused as refused:
        fields = {
            "model": owner._meta.label_lower,
            "pk": str(pk),
            "event_name": name,
            "reason": bounded(str(refused), 300),
        }
        logger.info("stator.event_refused", extra=fields)
        refusals[owner._meta.label_lower, name if name in graph_of(owner).event_names else "unknown"] += 1
        raise
    return taken[0]


@dataclass(frozen=True, slots=True)
class _Request:
    owner: type[Model]
    pk: object
    name: str
    payload: object
    by: Any
    key: str
    reason: str
    visit: tuple[int, int] | None

    def take(self, using: str, rows: QuerySet[Model], was: Locked) -> Sent:
        """Take the event for an object that is locked."""
        graph = graph_of(self.owner)
        mine = events_of(self.owner, using).filter(was.life.of_life, object_pk=str(self.pk))
        if self.name not in graph.event_names:
            named = ", ".join(graph.event_names) or "none"
            raise EventRefused(f"{graph.__name__} has no event {self.name!r}; its events: {named}")
        for what, text in (("the sender's name", self._sender), ("the key", self.key)):
            if wrong := text_problem(text):
                raise EventRefused(f"{what} {wrong}")
        if repeated := self._repeated(mine):
            return Sent("repeated", repeated, note=self._differing(using, repeated))
        if self.visit not in (None, (was.life.number, was.life.visit)):
            raise EventRefused(f"{self._object} has changed since it was asked for {self.name!r}; it is in {was.state}")
        state = graph.states.get(was.state)
        if state is not None and self.name in state.events:
            return self._given(using, rows, was, state.events[self.name])
        awaited = next((event for event in declared_events(self.owner, self.name) if event.keep_for), None)
        if awaited is None or self._was_taken(using, was):
            raise EventRefused(self._not_awaited(was, state, mine))
        event = self._checked(rows, awaited)
        event.life = was.life.number
        event.until = Now() + timedelta(seconds=awaited.keep_for or 0.0)
        if event.voter and mine.filter(name=self.name, version=None, voter=event.voter, until__gt=Now()).exists():
            raise EventRefused(f"{self._object} has {self.name!r} from {event.voter} already, which it keeps")
        event.save(using=using)
        note_event(self.owner, using, was.pk, event, "kept")
        return Sent("kept", event)

    def _was_taken(self, using: str, was: Locked) -> bool:
        """Return whether the object has been, in this life, in a state that takes the event: it is kept only before."""
        records: QuerySet[Event] = QuerySet(Event, using=using)
        mine = records.filter(was.life.of_life, model_label=self.owner._meta.label_lower, object_pk=str(self.pk))
        # A kept event has no source. Beside marks of states that were left, taken events tell of earlier releases.
        return mine.filter(name=self.name).exclude(source="").exists()

    def _given(self, using: str, rows: QuerySet[Model], was: Locked, awaited: AwaitedEvent) -> Sent:
        event = self._checked(rows, awaited)
        if (
            event.voter
            and events_of_visit(self.owner, using, was.pk, was.life).filter(name=self.name, voter=event.voter).exists()
        ):
            raise EventRefused(f"{self._object} has {self.name!r} from {event.voter} already; another sender is needed")
        if missing := apply_event(self.owner, using, was, awaited, event):
            return Sent("counted", event, missing)
        return Sent("moved" if awaited.target else "ready", event)

    @property
    def _object(self) -> str:
        return f"{self.owner._meta.label} {shown_key(self.pk)}"

    @property
    def _sender(self) -> str:
        return name_of(self.by)

    def _repeated(self, mine: QuerySet[Event]) -> Event | None:
        if not self.key:
            return None
        if len(self.key) > EVENT_KEY_LENGTH:
            raise EventRefused(f"the key has {len(self.key)} characters; the most is {EVENT_KEY_LENGTH}")
        # What was kept and never given has done nothing, so it may come again.
        own = mine.filter(key=self.key, sender=self._sender)
        own.filter(version=None, until__lte=Now()).delete()
        earlier = own.first()
        if earlier is not None and earlier.name != self.name:
            raise EventRefused(
                f"{self._object} has {earlier.name!r} with the key {self.key!r} already; use another key"
            )
        return earlier

    def _differing(self, using: str, first: Event) -> str:
        """Return a note, and write it down, if a repeated event has another payload than the first one."""
        declared = declared_events(self.owner, self.name)
        awaited = next((event for event in declared if event.state.name == first.source), declared[0])
        try:
            payload = self._valid(awaited)
            same = json.loads(_json_of(payload)) == first.payload
        except EventRefused:
            payload, same = None, self.payload == first.payload
        if same:
            return ""
        note = f"the key {self.key!r} came with another payload before; that one counts"
        fields = {"model": self.owner._meta.label_lower, "pk": str(self.pk), "event_name": self.name, "key": self.key}
        logger.warning("stator.event_repeated", extra=fields)
        again = Event(name=self.name, payload=payload, sender=self._sender)
        note_event(self.owner, using, self.pk, again, f"repeated: {note}")
        return note

    def _not_awaited(self, was: Locked, state: State | None, mine: QuerySet[Event]) -> str:
        waits = f"it waits for {' or '.join(state.events)}" if state and state.events else "it waits for no event"
        decided = mine.filter(version=was.life.visit).order_by("-pk").first()
        by = f" from {decided.sender}" if decided and decided.sender else ""
        why = f" since {decided.name!r}{by}" if decided else ""
        return f"{self._object} is in {was.state}{why}, and does not take {self.name!r} there; {waits}"

    def _checked(self, rows: QuerySet[Model], awaited: AwaitedEvent) -> Event:
        """Return the unsaved event if its sender and its payload are valid."""
        self._check_sender(rows, awaited)
        payload = self._valid(awaited)
        _json_of(payload)
        voter = self._sender if awaited.takes_several else None
        if voter == "":
            many = "" if callable(awaited.count) else f"{awaited.count} "
            raise EventRefused(f"{self.name!r} takes {many}different senders; pass by=")
        event = Event(
            model_label=self.owner._meta.label_lower, object_pk=str(self.pk), name=self.name, payload=payload,
            sender=self._sender, key=self.key or None, voter=voter,
        )  # fmt: skip
        event.reason = self.reason
        return event

    def _check_sender(self, rows: QuerySet[Model], awaited: AwaitedEvent) -> None:
        instance = rows.get() if awaited.permission or awaited.unless else None
        if refusal := refusal_of(awaited, instance, self.by, self._object):
            raise EventRefused(refusal)

    def _valid(self, awaited: AwaitedEvent) -> object:
        form = awaited.form
        if form is None:
            return self.payload
        if not has_fields(awaited):
            try:
                return form(self.payload)
            except (ValidationError, ValueError, TypeError) as error:
                raise EventRefused(f"the payload of {self.name!r} is wrong: {_one_line(error)}") from error
        if self.payload is not None and not isinstance(self.payload, Mapping):
            raise EventRefused(f"the payload of {self.name!r} is {type(self.payload).__name__}; pass a dictionary")
        filled: Any = form(dict(self.payload or {}))
        if not filled.is_valid():
            wrong = "; ".join(f"{name}: {' '.join(map(str, errors))}" for name, errors in filled.errors.items())
            raise EventRefused(f"the payload of {self.name!r} is wrong: {wrong}")
        return payload_of(filled)


def apply_event(owner: type[Model], using: str, locked: Locked, awaited: AwaitedEvent, event: Event) -> int:
    """Store an event that a locked object waits for, and do what it does; return how many more senders it needs."""
    rows: QuerySet[Model] = QuerySet(owner, using=using).filter(pk=locked.pk)
    needed = awaited.needed(rows.get)
    missing = needed - 1
    if missing:
        missing -= events_of_visit(owner, using, locked.pk, locked.life).filter(name=event.name).count()
    leads_to = awaited.target if missing <= 0 else None
    event.version = locked.life.visit_after(locked.state, leads_to) if leads_to else locked.life.visit
    event.until, event.source, event.life = None, locked.state, locked.life.number
    event.to = leads_to.name if leads_to else ""
    event.save(using=using)
    if missing > 0:
        note_event(owner, using, locked.pk, event, f"{needed - missing} of {needed}")
    elif leads_to is not None:
        act = HandAct(target=leads_to, actor=event.sender, reason=event.described, kind=EVENT)
        move_locked(rows, [locked], leads_to, entering_from(owner, leads_to, [locked]), act)
    else:
        note_event(owner, using, locked.pk, event)
        rows.update(**columns.waking())
        announce(owner, using)
    return max(missing, 0)


def note_event(owner: type[Model], using: str, pk: object, event: Event, outcome: str = "") -> None:
    """Write a history entry of an event that does not move its object."""
    reason = f"{event.described} ({outcome})" if outcome else event.described
    by_hand(QuerySet(owner, using=using).filter(pk=pk), [pk], HandAct(actor=event.sender, reason=reason, kind=EVENT))


def withdraw(
    model: type[Model], pk: object, name: str, *, by: object, reason: str = "", using: str | None = None
) -> Sent:
    """Take back what a sender has sent while further senders are missing; raise :class:`EventRefused` otherwise."""
    owner = owner_of(model)
    using = using or router.db_for_write(owner)
    sender, named, withdrawn = name_of(sender_of(by)), f"{owner._meta.label} {shown_key(pk)}", []

    def take(alias: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        [was] = before
        state = graph_of(owner).states.get(was.state)
        awaited = state.events.get(name) if state else None
        votes = events_of_visit(owner, alias, was.pk, was.life).filter(name=name, source=was.state, voter__isnull=False)
        mine = votes.filter(voter=sender, to="").first() if awaited and sender else None
        if awaited is None or mine is None:
            raise EventRefused(f"{named} has no {name!r} from {sender or 'this sender'} that still waits for others")
        missing = awaited.needed(rows.get) - votes.count()
        if missing <= 0 and awaited.target is None:
            raise EventRefused(f"{named} has got {name!r} from all its senders; it cannot be withdrawn")
        mine.reason = reason
        note_event(owner, alias, was.pk, mine, "withdrawn")
        mine.delete()
        withdrawn.append(Sent("withdrawn", mine, missing + 1))
        return 1

    in_batches(QuerySet(owner, using=using).filter(pk=pk), take)
    if not withdrawn:
        raise EventRefused(f"{named} does not exist")
    return withdrawn[0]


def payload_of(form: BaseForm) -> dict[str, object]:
    """Return the payload of an event from its valid form: the cleaned data, with the keys of chosen objects.

    Several objects without an order of their own come by their keys: the same choice is the same payload.
    """
    chosen = {name: field for name, field in form.fields.items() if isinstance(field, ModelChoiceField)}

    def payload(name: str, value: object) -> object:
        if isinstance(value, QuerySet) and not value.ordered:
            value = value.order_by("pk")
        return chosen[name].prepare_value(value) if name in chosen else value

    return {name: payload(name, value) for name, value in form.cleaned_data.items()}


def refusal_of(awaited: AwaitedEvent, instance: Model | None, by: object, named: str) -> str:
    """Return why a sender may not send an event to an object of that name, whoever has sent it; "" if it may."""
    if awaited.permission:
        if not hasattr(by, "has_perm") or (isinstance(by, Sender) and not by.permitted):
            return f"{awaited.name!r} needs a user with the permission {awaited.permission}; pass by=USER"
        if not has_permission(by, awaited, instance):
            return f"{name_of(by)} lacks the permission {awaited.permission} for {awaited.name!r}"
    if awaited.unless is not None and awaited.unless(instance, by):
        who = name_of(by) or "this sender"
        return f"{who} may not send {awaited.name!r} to {named}: {_words_of(awaited.unless)}"
    return ""


def name_of(by: Any) -> str:
    """Return the name under which a sender's events are stored."""
    return str(by.get_username())[:150]


def has_permission(user: Any, awaited: AwaitedEvent, instance: Model | None = None) -> bool:
    """Return whether a user has the permission of an event, in general or for one object."""
    name = awaited.permission
    return bool(user.has_perm(name) or (instance is not None and user.has_perm(name, instance)))


def has_fields(awaited: AwaitedEvent) -> bool:
    """Return whether the form of an event is a form class of Django."""
    return isinstance(awaited.form, type) and issubclass(awaited.form, BaseForm)


class PayloadForm(forms.Form):
    """The payload of an event without a form of fields."""

    payload = forms.JSONField(required=False, help_text='JSON, for example {"note": "ok"}; or empty.')


def form_of(awaited: AwaitedEvent) -> Any:
    """Return the class of the form that asks for the payload of an event."""
    return awaited.form if has_fields(awaited) else PayloadForm


def declared_events(owner: type[Model], name: str) -> list[AwaitedEvent]:
    """Return the event of that name as each state that takes it declares it."""
    return [state.events[name] for state in graph_of(owner).states.values() if name in state.events]


def _json_of(payload: object) -> str:
    """Return the payload as JSON text; raise ``EventRefused`` if it cannot be stored."""
    try:
        return json_text("the payload", payload, load_settings().PAYLOAD_LIMIT, PAYLOAD_DEPTH, ENCODER)
    except ValueError as error:
        raise EventRefused(str(error)) from None


def _one_line(error: Exception) -> str:
    said = error.messages if isinstance(error, ValidationError) else [str(error)]
    return " ".join(" ".join(said).split())


def _words_of(function: object) -> str:
    """Return the first line of the docstring of a function, or else its name in words."""
    function = getattr(function, "func", function)
    if lines := (function.__doc__ or "").strip().splitlines():
        return str(lines[0]).rstrip(".")
    return getattr(function, "__name__", type(function).__name__).strip("_").replace("_", " ")
