"""A graph for a column, from what its rows have, its code writes and other tables recorded; it moves nothing itself."""

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from keyword import iskeyword

from django.db import models

from stator.extensions.adopt.flow import Values, Write
from stator.extensions.adopt.histories import HistoryLook
from stator.extensions.adopt.sources import CodeLook
from stator.extensions.adopt.table import ValueCount
from stator.extensions.adopt.target import Stored, Target
from stator.graph import StateGraph
from stator.graph.durations import span
from stator.graph.options import STATE_NAME_LENGTH
from stator.texts import listed

# The most characters of a line of the module, and the lines before its class.
WIDTH, HEAD = 120, 11


@dataclass
class Proposed:
    """A proposed state. ``count``: its rows, if there are some. ``takers``: the places that move its rows on."""

    name: str
    value: str | int
    label: str
    count: ValueCount | None
    final: bool = True
    takers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Transition:
    """A transition with its evidence: places in the code, and how often other tables have it.

    Without evidence it is assumed, so that a way leads to each state. ``asked``: the place that writes its target, if
    the code asks for rows with its source.
    """

    source: str
    target: str
    places: tuple[str, ...] = ()
    recorded: int = 0
    asked: str = ""

    @property
    def assumed(self) -> bool:
        """Whether nothing shows it."""
        return not (self.places or self.recorded)


@dataclass(frozen=True)
class Proposal:
    """``loose``: writes from values that the code does not show. ``undeclared``: values that only rows or code have."""

    graph: str
    initial: str
    states: list[Proposed]
    transitions: list[Transition]
    loose: list[Write]
    undeclared: list[Stored]


def propose(target: Target, counts: list[ValueCount], code: CodeLook, histories: list[HistoryLook]) -> Proposal:
    """Return the graph that the evidence suggests."""
    writes = code.writes
    evidence = _evidence(writes, histories)
    values = _values(target, counts, writes, evidence)
    names = _names(target, values)
    by_value = {each.value: each for each in counts}
    states = [Proposed(names[value], value, target.labels.get(value, ""), by_value.get(value)) for value in values]
    initial = names[_initial(target, values, writes, evidence)] if values else ""
    transitions = [
        Transition(names[source], names[to], tuple(places), recorded)
        for (source, to), (places, recorded) in evidence.items()
        if source in names and to in names and source != to
    ]
    loose = [write for write in writes if write.sure and write.sources is None and not write.creates]
    transitions += _asked(code.asked, loose, names, transitions)
    transitions += _assumed(initial, states, transitions)
    for state in states:
        own = [each for each in transitions if each.source == state.name]
        state.final = not own
        state.takers = sorted({place for each in own for place in each.places})
    order = {state.name: number for number, state in enumerate(states)}
    transitions.sort(key=lambda each: (order[each.source], order[each.target]))
    declared = {*target.labels} or {*values}
    return Proposal(
        f"{target.model.__name__}Graph", initial, states, transitions, loose,
        [value for value in values if value not in declared],
    )  # fmt: skip


Evidence = dict[tuple[Stored, Stored], tuple[list[str], int]]


def _evidence(writes: list[Write], histories: list[HistoryLook]) -> Evidence:
    places: dict[tuple[Stored, Stored], list[str]] = defaultdict(list)
    recorded: dict[tuple[Stored, Stored], int] = defaultdict(int)
    for write in writes:
        if write.sure and not write.creates:
            for source in _ordered(write.sources):
                for to in _ordered(write.targets):
                    places[source, to].append(write.where)
    for look in histories:
        for pair, number in look.moves.items():
            recorded[pair] += number
    return {pair: (places.get(pair, []), recorded.get(pair, 0)) for pair in dict.fromkeys([*places, *recorded])}


def _ordered(values: frozenset[Stored] | None) -> list[Stored]:
    return sorted(values or (), key=str)


def _values(target: Target, counts: list[ValueCount], writes: list[Write], evidence: Evidence) -> list[str | int]:
    """Return each known value, the declared ones first, then the ones of rows, of code and of other tables."""
    of_code = [value for write in writes if write.sure for value in _ordered(write.targets)]
    evident = [*target.labels, target.default, *(each.value for each in counts), *of_code]
    evident += [value for pair in evidence for value in pair]
    given = [value for value in dict.fromkeys(evident) if value is not None]
    if {type(value) for value in given} == {str, int}:
        # The column has one type; the other values are mistakes of code or of a log.
        kind = int if isinstance(target.field, models.IntegerField) else str
        given = [value for value in given if type(value) is kind]
    return given


def _initial(target: Target, values: list[str | int], writes: list[Write], evidence: Evidence) -> str | int:
    """Return the value of new rows: the default, what is created, what is left and never entered, or the first."""
    created = [value for write in writes if write.creates and write.sure for value in _ordered(write.targets)]
    entered = {to for _, to in evidence}
    begins = [source for source, _ in evidence if source not in entered]
    candidates = (target.default, *created, *begins, *values)
    return next(value for value in candidates if value is not None and value in values)


def _asked(asked: Values, loose: list[Write], names: dict[Stored, str], known: list[Transition]) -> list[Transition]:
    """Return how a sweep moves rows: from values it asks for to those that it writes and nothing else enters."""
    entered = {each.target for each in known}
    written = {to: write.where for write in reversed(loose) for to in write.targets or () if to in names}
    return [
        Transition(names[source], names[to], asked=written[to])
        for source in _ordered(asked)
        for to in sorted(written, key=str)
        if source in names and source != to and names[to] not in entered
    ]


def _assumed(initial: str, states: list[Proposed], known: list[Transition]) -> list[Transition]:
    """Return a transition to each state that no known way leads to from the initial one."""
    assumed: list[Transition] = []
    for state in states:
        reached, ways = {initial}, [*known, *assumed]
        while more := {each.target for each in ways if each.source in reached} - reached:
            reached |= more
        if state.name not in reached:
            assumed.append(Transition(initial, state.name))
    return assumed


# Names


def _names(target: Target, values: list[str | int]) -> dict[Stored, str]:
    """Return a name for each value that a graph can have: its text, its constant, its label, or its number."""
    constants = _by_value(target)
    names: dict[Stored, str] = {}
    taken = {str(value) for value in values}
    for value in values:
        candidates = [value, constants.get(value), target.labels.get(value), f"state_{value}"]
        slugs = [slug for slug in map(_slug, candidates) if slug]
        free = [slug for slug in slugs if slug not in names.values() and (slug == value or slug not in taken)]
        names[value] = free[0] if free else f"state_{len(names)}"
    return names


def _by_value(target: Target) -> dict[Stored, str]:
    """Return the constant of each value, without the beginning that all of them have, such as ``STATUS_``."""
    names = list(target.constants)
    first = names[0] if len(names) > 1 else ""
    ends = [at for at, letter in enumerate(first, 1) if letter == "_"]
    shared = next((first[:end] for end in reversed(ends) if all(name.startswith(first[:end]) for name in names)), "")
    return {value: name.removeprefix(shared) for name, value in target.constants.items()}


def _slug(text: object) -> str:
    """Return a text as the name of a state; empty if it cannot be one."""
    slug = re.sub(r"\W+", "_", "" if text is None else str(text), flags=re.ASCII).strip("_").lower()
    if isinstance(text, str) and text.isidentifier() and text.isascii() and not text.startswith("_"):
        slug = text if not text.isupper() else slug
    usable = slug.isidentifier() and not iskeyword(slug) and not hasattr(StateGraph, slug) and len(slug) <= 100
    # Commands name rows without a state so.
    return slug if usable and slug not in {*StateGraph.__annotations__, "State", "unmanaged"} else ""


# The module


def module_of(target: Target, proposal: Proposal) -> list[str]:
    """Return the lines of a module with the graph."""
    lines = [
        f'"""The states of {target.label}, proposed by ``manage.py stator adopt``. Read it, and change it.',
        "",
        "Workers move nothing yet: every state that rows leave has externally_progressed=True. To let workers move the",
        "rows of a state, replace that by try_interval=SECONDS and write its handler. In the model, the field becomes",
        "",
        f"    {field_of(target, proposal)}",
        '"""',
        "",
        "from stator import State, StateGraph",
        "",
        "",
        f"class {proposal.graph}(StateGraph):",
    ]
    for state in proposal.states:
        lines += [f"    # {note}" for note in _notes(state)]
        lines.append(f"    {state.name} = State({', '.join(_options(proposal, state))})")
    if proposal.transitions:
        lines.append("")
    for each in proposal.transitions:
        lines.append(f"    {each.source}.transitions_to({each.target})  # {_reason(each)}"[:WIDTH])
    return lines


def field_of(target: Target, proposal: Proposal) -> str:
    """Return the line of the model with the field, of the type that the column has."""
    field, kind, is_text = target.field, type(target.field).__name__, isinstance(target.field, models.CharField)
    options = [
        f"base_field=models.{kind}" if kind not in ("CharField", "IntegerField") and hasattr(models, kind) else "",
        f"max_length={field.max_length}" if is_text and field.max_length != STATE_NAME_LENGTH else "",
        *(f"{name}=True" for name in ("null", "db_index") if getattr(field, name)),
        *(
            f"{name}={_literal(value)}"
            for name in ("db_column", "db_collation")
            if (value := getattr(field, name, None))
        ),
    ]
    given = ", ".join([proposal.graph, *filter(None, options)])
    return f"{target.column} = StateField({given})"


def _notes(state: Proposed) -> list[str]:
    count = state.count
    if count is None:
        return ["No rows."]
    age = f", the oldest {span(count.oldest)}" if count.oldest is not None else ""
    return [f"{count.shown}{age}."]


def _options(proposal: Proposal, state: Proposed) -> list[str]:
    leads = any(each.target == proposal.initial for each in proposal.transitions)
    usual = state.name[:1].upper() + state.name[1:].replace("_", " ")
    return [
        *([f"value={_literal(state.value)}"] if state.value != state.name else []),
        *([f"label={_literal(state.label)}"] if state.label and state.label != usual else []),
        *(["force_initial=True"] if state.name == proposal.initial and leads else []),
        *([] if state.final else ["externally_progressed=True"]),
    ]


def _literal(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)


def _reason(transition: Transition) -> str:
    if transition.asked:
        return f"assumed: the code asks for {transition.source}, and {transition.asked} writes"
    if transition.assumed:
        return "assumed: nothing shows how rows get there"
    recorded = [f"recorded {transition.recorded:,} times"] if transition.recorded else []
    return "; ".join([*recorded, *([listed(transition.places, 2)] if transition.places else [])])
