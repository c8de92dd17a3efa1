"""What ``explain()`` and reports of problems say of objects that wait for others, or move with them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote

from django.db.models import F, Model, Q, QuerySet

from stator.extensions.problems.causes import ELLIPSIS, SHOWN, about, hashed, keys_as_arguments, of_models, waits
from stator.extensions.problems.facts import Fact, Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.many import Many
from stator.extensions.problems.sentences import Said, timeout_of
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.extensions.related.circles import Member, circle_text, circle_through, links_of
from stator.extensions.related.waiters import AwaitedObject, waiters
from stator.extensions.related.waits import waiting as rows_that_wait
from stator.extensions.related.waits import waits_of
from stator.extensions.related.watches import RelatedWatch, watches_of
from stator.graph.durations import span
from stator.rows.keys import shown_key
from stator.rows.meta import graph_of
from stator.rows.problem import ERROR, FORGOTTEN, WARNING, AdminAction, Problem
from stator.rows.state_column import state_field
from stator.texts import COUNTED, count_text, counted, either

# Related objects are counted up to this number, by an index; unfinished ones, up to ``COUNTED``.
MAX_RELATED = 100_000


@dataclass(frozen=True, slots=True)
class Awaited:
    """An object that another object waits for: its state, and the states that end the waiting."""

    label: str
    pk: object
    state: str
    until: tuple[str, ...]


class AwaitedObjects(Fact[list[Awaited]]):
    """The objects that it waits for; none if no worker would attempt it anyway."""

    holds_up = True

    def columns(self, rows: QuerySet[Model], key: object) -> Mapping[str, object]:
        expressions: dict[str, object] = {}
        for wait in waits_of(self.model):
            expressions[f"stator_awaited_{wait.field}"] = wait.state(rows.filter(pk=key))
            expressions[f"stator_key_{wait.field}"] = F(wait.key)
        return expressions

    def known(self, facts: Facts) -> list[Awaited]:
        if not facts.automatic or facts.claimed or facts.quarantined:
            return []
        states = [(wait, facts.row[f"stator_awaited_{wait.field}"]) for wait in waits_of(facts.model)]
        return [
            Awaited(str(wait.awaited._meta.label), facts.row[f"stator_key_{wait.field}"], state, wait.until)
            for wait, state in states
            if state is not None and state not in wait.until
        ]


class Circle(Fact[list[Member]]):
    """The objects that wait for each other, this one first."""

    def known(self, facts: Facts) -> list[Member]:
        return circle_through(self.model, facts.pk, self.using) if facts.of(AwaitedObjects) else []


@dataclass(slots=True)
class AwaitedCount:
    """An edge of the object's state: how many related objects it has, and how many of each state the edge waits for.

    ``missing`` stops at ``COUNTED`` and one more, ``total`` at ``MAX_RELATED`` and one more.
    ``oldest``: when the first of them entered each state.
    ``key``: of the related object, if the relation leads to one at most.
    """

    watch: RelatedWatch
    total: int
    missing: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, datetime] = field(default_factory=dict)
    key: object = None

    def is_final(self, state: str) -> bool:
        """Return whether related objects stay in a state."""
        known = graph_of(self.watch.other).states.get(state)
        return known is not None and known.terminal


class RelatedObjects(Fact[list[AwaitedCount]]):
    """What edges of its state by related objects still miss."""

    moves_on = True

    def known(self, facts: Facts) -> list[AwaitedCount]:
        return [
            _gathered(watch, facts.pk, self.using) for watch in watches_of(self.model) if watch.state.name == facts.name
        ]


def _gathered(watch: RelatedWatch, pk: object, using: str) -> AwaitedCount:
    """Return what an edge by related objects misses, in two statements, or three."""
    related = watch.related_to_one(using, pk)
    gathered = AwaitedCount(watch, related.order_by().values("pk")[: MAX_RELATED + 1].count())
    field = state_field(watch.other)
    missing = related.exclude(**field.among(watch.condition.in_)).order_by().values_list(field.name, "state_changed")
    for value, changed in missing[: COUNTED + 1]:
        state = field.name_of(value)
        gathered.missing[state] += 1
        gathered.oldest[state] = min(changed, gathered.oldest.get(state, changed))
    if watch.to_one:
        rows: QuerySet[Model] = QuerySet(watch.model, using=using).filter(pk=pk)
        gathered.key = rows.values_list(f"{watch.name}__pk", flat=True).first()
    return gathered


def awaits_related(facts: Facts) -> Iterator[Said]:
    """Say which related objects the object waits for, by their states, and when it times out."""
    timeout, of_timeout = timeout_of(facts)
    for each in facts.of(RelatedObjects):
        words, numbers = _missing(facts, each)
        yield f"Waits for {words}{timeout}.", {**numbers, **of_timeout}
        timeout, of_timeout = "", {}


def heeds_related(facts: Facts) -> Iterator[Said]:
    """Say which related objects also move the object."""
    for each in facts.of(RelatedObjects):
        words, numbers = _missing(facts, each)
        yield f"Also waits for {words}.", numbers


def _missing(facts: Facts, each: AwaitedCount) -> Said:
    """Return what an edge by related objects misses as a phrase: ``3 of 9 lines: 2 in packing, 1 failed``."""
    watch, wanted = each.watch, either(each.watch.condition.in_)
    ages = {state: (facts.now - since).total_seconds() for state, since in each.oldest.items()}
    states = {state: {"count": count, "oldest": ages[state]} for state, count in each.missing.most_common()}
    numbers = {
        "model": watch.other._meta.label, "relation": watch.name, "key": watch.key, "in": list(watch.condition.in_),
        "every": watch.condition.every, "total": each.total, "missing": each.missing.total(), "states": states,
        "pk": None if each.key is None else shown_key(each.key), "of": str(facts.pk), "target": watch.target.name,
    }  # fmt: skip
    total = f"{MAX_RELATED:,}+" if each.total > MAX_RELATED else f"{each.total:,}"
    if not each.total:
        return f"{watch.name} in {wanted}; there are none", numbers
    if watch.condition.every and not each.missing:
        return f"a worker's next pass: all {total} {watch.name} are in {wanted}", numbers
    how_many = count_text(each.missing.total()) if watch.condition.every else "one"
    parts = ", ".join(_some(state, count, ages[state], each) for state, count in each.missing.most_common())
    return f"{how_many} of {total} {watch.name} to be in {wanted}: {parts}", numbers


def _some(state: str, count: int, oldest: float, each: AwaitedCount) -> str:
    """Return how many related objects are in a state: in one where they stay, ``1 failed``."""
    if each.is_final(state):
        return f"{count:,} {state}"
    return f"{count:,} in {state} ({'' if count == 1 else 'the oldest '}for {span(oldest)})"


def circle(facts: Facts) -> Iterator[Said]:
    """Say which objects wait for each other."""
    members = facts.of(Circle)
    names = [f"{model._meta.label} {shown_key(pk)}" for model, pk in members]
    numbers = {"circle": names, "waits": links_of(members)}
    yield f"Waits in a circle, so none of these objects moves by itself: {circle_text(members)}.", numbers


def waits_for(facts: Facts) -> Iterator[Said]:
    """Say of each awaited object where it is and has to get."""
    for one in facts.of(AwaitedObjects):
        until = either(one.until)
        sentence = f"Waits for {one.label} {shown_key(one.pk)}, which is in state {one.state}, until it is in {until}."
        yield sentence, {"model": one.label, "pk": shown_key(one.pk), "state": one.state, "until": list(one.until)}


def _rows_awaiting_related(many: Many) -> Q:
    return many.among({watch.state.name for watch in watches_of(many.model)}) & ~many.automatic


def _waiters_of(one: Surveyed) -> list[AwaitedObject]:
    return list(one.read.get("waiting", ()))


def find_waiting(one: Surveyed) -> Iterator[Problem]:
    """Find objects that other objects have waited for too long."""
    for each in [each for each in _waiters_of(one) if _waits_too_long(one, each)][:SHOWN]:
        label, what = each.model._meta.label, "ended in" if each.ended else "is in"
        never = "; it does not get further by itself" if each.ended else ""
        yield about(
            one, f"{waits(each.count, each.more)} in {each.waiting_in} for one {label}, which {what} {each.state}; "
            f"the first has waited {span(each.longest)}", level=ERROR if each.ended else WARNING, count=each.count,
            more=each.more, since=each.longest,
            detail=f"{hashed([each.pk])} has to be in {either(each.until)}{never}",
            numbers={"awaited": each.model._meta.label_lower, "pk": each.pk, "until": list(each.until)},
            actions=(AdminAction(f"Move{ELLIPSIS}", each.model._meta.label_lower, "stator_move", (each.pk,)),),
            remedy="find out what keeps it there, or move it",
            command=f"manage.py stator move {label} STATE {keys_as_arguments([each.pk])} --reason WHY",
        )  # fmt: skip


def find_circles(survey: Survey) -> Iterator[Problem]:
    """Find objects that wait for each other, each circle once."""
    reported = set[frozenset[Member]]()
    for one in survey.models.values():
        for each in _waiters_of(one):
            members = frozenset(each.circle)
            if not members or members in reported:
                continue
            reported.add(members)
            label, pk = each.model._meta.label, each.pk
            yield Problem(
                "", f"circle: {counted(len(members), 'object')} wait for each other, and none of them moves by itself",
                {"awaited": each.model._meta.label_lower, "pk": pk, "models": [one.label]}, "move one of them",
                where=label, model=each.model._meta.label_lower, detail=circle_text(each.circle), count=len(members),
                since=each.longest,
                actions=(AdminAction(f"Move{ELLIPSIS}", each.model._meta.label_lower, "stator_move", (pk,)),),
                command=f"manage.py stator move {label} {quote(each.until[0])} {keys_as_arguments([pk])} --reason WHY",
            )  # fmt: skip


def _waiting_too_long(one: Surveyed) -> Mapping[str, int]:
    """Return how many objects of each state are told as waiting for too long."""
    waiting = Counter[str]()
    for each in _waiters_of(one):
        waiting[each.waiting_in] += each.count if _waits_too_long(one, each) else 0
    return waiting


def _waits_too_long(one: Surveyed, each: AwaitedObject) -> bool:
    if each.circle:
        # A problem of its own, from its beginning on.
        return False
    state = one.depths.states[each.waiting_in].state
    most = (state.expect_within if state else None) or FORGOTTEN
    return each.ended or each.longest > most


AWAITS_RELATED = ProblemKind.of_one(
    awaits_related,
    fact=RelatedObjects,
    after="quarantined",
    holds=lambda facts: bool(facts.rests_outside and facts.of(RelatedObjects)),
    rows=_rows_awaiting_related,
    remedy="Look at the related objects that are not done. To go on without them, move the object by hand.",
)
CIRCLE = ProblemKind.of_one(
    circle,
    fact=Circle,
    after="external",
    holds=lambda facts: bool(facts.of(Circle)),
    remedy="Move one of these objects to a state for which the other waits.",
    alarming=True,
    level=ERROR,
    rank=6,
    find=find_circles,
)
WAITS_FOR = ProblemKind.of_one(
    waits_for,
    fact=AwaitedObjects,
    after="circle",
    holds=lambda facts: bool(facts.of(AwaitedObjects)),
    rows=lambda many: rows_that_wait(many.rows),
    remedy="Check the object that it waits for.",
    keeps="waiting for other objects",
)
HEEDS_RELATED = ProblemKind.of_one(
    heeds_related,
    fact=RelatedObjects,
    after="due",
    holds=lambda facts: bool(facts.automatic and facts.of(RelatedObjects)),
    remedy="Nothing to do: the object moves without them, too.",
)
WAITING = ProblemKind(
    "waiting",
    after="starved",
    level=WARNING,
    rank=2,
    reads=waiters,
    tells=_waiting_too_long,
    find=of_models(find_waiting),
    remedy="find out what keeps the other object there, or move it",
)
