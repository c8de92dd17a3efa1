"""What ``explain()`` and reports of problems say of objects that wait for events."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from django.db.models import Model, Q, QuerySet

from stator.extensions.events.available import NAMED, people_with
from stator.extensions.events.edges import AwaitedEvent
from stator.extensions.events.models import Event, events_of
from stator.extensions.problems.causes import about, all_in, of_models, waits
from stator.extensions.problems.facts import Fact, Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.many import Many
from stator.extensions.problems.sentences import Said, timeout_of
from stator.extensions.problems.surveyed import Surveyed
from stator.graph.durations import span
from stator.rows.clock import Now
from stator.rows.life import OF_LIFE, Life
from stator.rows.meta import graph_of
from stator.rows.problem import ERROR, Problem
from stator.survey.numbers import Depths
from stator.texts import either, listed

# Events that count towards a number of senders, or are kept, are read up to this number.
MAX_EVENTS = 100


class TakenEvents(Fact[list[AwaitedEvent]]):
    """The events that its state takes."""

    moves_on = True

    def known(self, facts: Facts) -> list[AwaitedEvent]:
        return list(facts.state.events.values()) if facts.state else []


class SentEvents(Fact[list[Event]]):
    """Events that it got in its state and that need further senders, and events that are kept for a later state."""

    def known(self, facts: Facts) -> list[Event]:
        if not graph_of(self.model).event_names:
            return []
        life = Life.of(*(facts.row[name] for name in OF_LIFE))
        counted = life.of_wish & Q(version=life.visit, voter__isnull=False)
        counted |= life.of_life & Q(version=None, until__gt=Now())
        mine = events_of(self.model, self.using).filter(counted, object_pk=str(facts.pk))
        return list(mine.order_by("pk")[:MAX_EVENTS])


@dataclass(slots=True)
class Senders:
    """Who may send the events that an object waits for, by their names.

    ``people``: those with the permission, where that is known. ``needed``: how many senders each takes, without those
    whose functions fail.
    """

    people: dict[str, list[str]] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)


class ItsSenders(Fact[Senders]):
    """Who may send the events that it waits for."""

    def known(self, facts: Facts) -> Senders:
        senders = Senders()
        rows: QuerySet[Model] = QuerySet(self.model, using=self.using)
        for event in facts.of(TakenEvents):
            people = people_with(event.permission)
            if people is not None:
                senders.people[event.name] = people
            # A fault of the project's function, or a row that is gone, keeps nobody from the other facts.
            with suppress(Exception):
                senders.needed[event.name] = event.needed(rows.filter(pk=facts.pk).get)
        return senders


def is_for_nobody(facts: Facts) -> bool:
    """Return whether it waits for nothing but events that no active user may send."""
    taken = facts.of(TakenEvents)
    if not taken or facts.automatic or facts.is_followed(besides=TakenEvents):
        return False
    people = facts.of(ItsSenders).people
    return all(people.get(event.name) == [] for event in taken)


def awaits_event(facts: Facts) -> Iterator[Said]:
    """Say which events the object waits for, who may send them, and who has."""
    events, numbers = _taken(facts)
    timeout, of_timeout = timeout_of(facts)
    yield f"Waits for the event {events}{timeout}.", {**numbers, **of_timeout}


def takes_event(facts: Facts) -> Iterator[Said]:
    """Say which events it takes besides, and which came before their states."""
    if facts.of(TakenEvents) and facts.automatic:
        events, numbers = _taken(facts)
        yield f"Also takes the event {events}.", numbers
    for event in _kept(facts):
        left = (event.until - facts.now).total_seconds() if event.until else 0.0
        who = f" from {event.sender}" if event.sender else ""
        sentence = f"The event {event.name}{who} came early, and is kept for another {span(left)}."
        yield sentence, {"event": event.name, "sender": event.sender, "until": left}


def _kept(facts: Facts) -> list[Event]:
    """Return the events that came before its state."""
    return [event for event in facts.of(SentEvents) if event.version is None]


def _taken(facts: Facts) -> Said:
    """Return the events that its state takes as a phrase."""
    names, numbers, known = [], {}, facts.of(ItsSenders)
    for event in facts.of(TakenEvents):
        sent = [each for each in facts.of(SentEvents) if each.name == event.name and each.version is not None]
        senders = [each.sender for each in sent]
        parts = [f"from users with {event.permission}{_people(known.people.get(event.name))}"] * bool(event.permission)
        needed = known.needed.get(event.name)
        if event.takes_several:
            so_far = f" so far: {', '.join(senders)}" if senders else ""
            parts.append(f"{len(senders)} of {needed or 'several'} senders{so_far}")
        details = f" ({'; '.join(parts)})" if parts else ""
        names.append(f"{event.name}{details}")
        numbers[event.name] = {"permission": event.permission, "count": needed, "senders": senders}
        if event.name in known.people:
            numbers[event.name]["people"] = known.people[event.name][:NAMED]
    return either(names), {"events": numbers}


def _people(names: list[str] | None) -> str:
    """Return who they are, as the end of a phrase; "" if that is not known."""
    if names is None:
        return ""
    return f": {listed(names, NAMED)}" if names else ", which no active user has"


def _rows_awaiting(many: Many) -> Q:
    states = graph_of(many.model).states.values()
    return many.among(state for state in states if state.events and not state.automatic)


def _unanswerable(depths: Depths) -> dict[str, list[str]]:
    """Return the permissions that no active user has, by the state whose objects wait for nothing but such events."""
    waiting = {
        one.name: [event.permission for event in one.state.events.values()]
        for one in depths.states.values()
        if one.count and one.state and one.state.events and not (one.state.automatic or one.state.conditions)
    }
    nobodys = {name: names for name, names in waiting.items() if all(people_with(each) == [] for each in set(names))}
    return {name: sorted(set(names)) for name, names in nobodys.items()}


def _find_unanswerable(one: Surveyed) -> Iterator[Problem]:
    """Find objects that wait for events that no active user may send."""
    unanswerable: Mapping[str, list[str]] = dict(one.read.get("awaits_nobody", ()))
    for name, permissions in unanswerable.items():
        state = one.depths.states[name]
        yield about(
            one, f"{waits(state.count, state.cut)} in {name} for an event that nobody may send: no active user has "
            f"{either(permissions)}", count=state.count, since=state.oldest,
            remedy="give an active user the permission, or move them by hand",
            actions=(all_in(one, "List", "", states=[name]),),
        )  # fmt: skip


AWAITS_NOBODY = ProblemKind(
    "awaits_nobody",
    sentences=awaits_event,
    fact=ItsSenders,
    before="external",
    holds=is_for_nobody,
    remedy="Give an active user the permission. If nobody should have it, move the object by hand.",
    alarming=True,
    level=ERROR,
    rank=6,
    reads=lambda rows, depths: _unanswerable(depths),
    find=of_models(_find_unanswerable),
)
AWAITS_EVENT = ProblemKind.of_one(
    awaits_event,
    fact=TakenEvents,
    before="external",
    holds=lambda facts: bool(facts.of(TakenEvents)) and not (facts.automatic or is_for_nobody(facts)),
    rows=_rows_awaiting,
    remedy="Ask those who may send it. If it will not come, move the object by hand.",
)
# Never the first reason.
TAKES_EVENT = ProblemKind.of_one(
    takes_event,
    fact=SentEvents,
    after="due",
    holds=lambda facts: bool(_kept(facts) or (facts.of(TakenEvents) and facts.automatic)),
    remedy="Nothing to do: the object moves without it.",
)
