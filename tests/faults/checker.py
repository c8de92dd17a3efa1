"""Judges a history by the promises of the lock protocol. A pure function: events in, violations out.

I1 no two leases of one object overlap, no renewal by anybody but the holder, no reaping before expiry. I2 only
declared transitions, an unbroken chain, versions without gaps. I3 at most one start for each claim, at most one
accepted outcome for each (object, version), and none without a start; an atomic state has the effects of its accepted
outcomes and no others. I4 no accepted write by anybody but the holder. I5 every claim has exactly one end. I6 attempts
and crashes in the row are those in the history. I7 at the end everything is terminal, quarantined or deleted, and no
lock is left. I8 reaped and claimed again soon enough. I9 one holder for each exclusive key. I10 a
waiting row of higher priority is passed over by a bounded number of claims.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from tests.faults.events import Effect, Event, History, Kind, Row, kind_of

# Stands for a row that was deleted.
GONE = Row("", ready=False)

ENDS = frozenset({Kind.MOVE, Kind.WAIT, Kind.RELEASE, Kind.UNLOCK, Kind.REAP, Kind.DELETE, Kind.STEAL})


@dataclass(frozen=True, slots=True)
class Rules:
    """What may happen to the rows of one model.

    ``edges``: declared ``(from, to)``. ``external``: states in which rows may rest at the end besides the terminal
    ones. ``reap_slack`` and ``claim_slack``: seconds from expiry to the reaping, and on to the next claim.
    ``atomic``: states whose handlers write effects with the outcome, in one transaction. ``started``: whether handlers
    leave effects. ``quiet``: whether all work was done before the history ends. ``longest_lease``: seconds; a lease
    that ends later was made before the clock was set back, and may be reaped. ``passed_over``: how many claims may
    pass over a row that is ready and more urgent than what they take.
    """

    edges: frozenset[tuple[str, str]]
    terminal: frozenset[str]
    initial: str
    at_rest: frozenset[tuple[str, str]] = frozenset()
    external: frozenset[str] = frozenset()
    max_crashes: int = 3
    reap_slack: float | None = None
    claim_slack: float | None = None
    atomic: frozenset[str] = frozenset()
    started: bool = True
    # Whether the start is written before anything else of an attempt can happen, as in the simulation.
    start_is_first: bool = False
    quiet: bool = True
    operators: frozenset[str] = frozenset({"operator"})
    longest_lease: float | None = None
    passed_over: int | None = None


def rules_for(graph: Any, **given: Any) -> Rules:
    """The rules that a graph declares."""
    states = graph.states.values()
    timeouts = {(state.name, state.timeout_state.name) for state in states if state.timeout_state}
    renames = {(former, state.name) for former, state in graph.renames.items()}
    declared = {
        "edges": frozenset((state.name, child.name) for state in states for child in state.children),
        "at_rest": frozenset(timeouts | renames),
        "terminal": frozenset(state.name for state in graph.terminal_states),
        "initial": graph.initial_state.name,
    }
    return Rules(**{**declared, **given})


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: the rule, the row and what was seen."""

    rule: str
    pk: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """An event, what it means, and who held the row before it."""

    event: Event
    kind: Kind
    holder: str | None

    @property
    def ends_claim(self) -> bool:
        return self.holder is not None and self.kind in ENDS


@dataclass(slots=True)
class Case:
    """One row: its steps, the effects of its handlers, the rules, and the violations found so far."""

    pk: str
    steps: list[Step]
    effects: list[Effect]
    rules: Rules
    found: list[Violation] = field(default_factory=list)

    def object_to(self, rule: str, text: str) -> None:
        self.found.append(Violation(rule, self.pk, text))

    def by_operator(self, step: Step) -> bool:
        return step.event.actor in self.rules.operators


def check(history: History, rules: Rules) -> list[Violation]:
    """Every violation of the rules in a history; none when all is well."""
    effects: dict[str, list[Effect]] = {}
    for effect in history.effects:
        effects.setdefault(effect.pk, []).append(effect)
    found: list[Violation] = []
    for pk, events in history.rows().items():
        case = Case(pk, list(_steps(events)), effects.pop(pk, []), rules)
        for invariant in INVARIANTS:
            invariant(case)
        found += case.found
    found += [Violation("I3", pk, "a handler ran on an object that never was") for pk in effects]
    return found + keys_have_one_holder(history) + urgent_rows_go_first(history, rules)


def kinds_of(violations: Iterable[Violation]) -> set[str]:
    """The rules that were broken."""
    return {violation.rule for violation in violations}


def _steps(events: list[Event]) -> Iterator[Step]:
    holder = None
    for event in events:
        kind = kind_of(event)
        yield Step(event, kind, holder)
        if event.new is None or event.new.claim is None:
            holder = None
        elif kind in (Kind.CLAIM, Kind.STEAL):
            holder = event.actor


def leases_do_not_overlap(case: Case) -> None:
    """I1."""
    for step in case.steps:
        old, new, at = step.event.old, step.event.new, step.event.at
        if step.kind is Kind.STEAL:
            case.object_to("I1", f"{step.event.actor} claimed what {step.holder} held")
        elif step.kind is Kind.RENEW and step.event.actor != step.holder:
            case.object_to("I1", f"{step.event.actor} renewed the claim of {step.holder}")
        elif step.kind is Kind.REAP and at < old.locked_until and not _is_beyond(case, old.locked_until, at):
            case.object_to("I1", f"reaped {old.locked_until - at} before its lease ended")
        elif step.kind is Kind.CLAIM and not (old.ready and new.locked_until and new.locked_until > at):
            case.object_to("I1", f"claimed until {new.locked_until} at {at}, ready={old.ready}")
        elif step.kind is Kind.CLAIM and old.crashes >= case.rules.max_crashes:
            case.object_to("I1", f"claimed in quarantine, after {old.crashes} crashes")


def _is_beyond(case: Case, until: datetime, at: datetime) -> bool:
    """Whether a lease ends later than any can: then it was made before the clock was set back."""
    longest = case.rules.longest_lease
    return longest is not None and until > at + timedelta(seconds=longest)


def chain_is_unbroken(case: Case) -> None:
    """I2."""
    before = None
    for number, step in enumerate(case.steps):
        old, new = step.event.old, step.event.new
        if old != before or (number and before is None):
            case.object_to("I2", f"the log has {before}, the row {old}")
        if step.kind is Kind.CREATE and (new.state != case.rules.initial or new.version):
            case.object_to("I2", f"made in {new.state}, version {new.version}")
        if step.kind is Kind.TAMPER:
            case.object_to("I2", f"{step.event.actor} changed {old} to {new}")
        if step.kind is Kind.MOVE:
            _check_move(case, step)
        before = new


def _check_move(case: Case, step: Step) -> None:
    old, new = step.event.old, step.event.new
    if new.version != old.version + 1:
        case.object_to("I2", f"version went from {old.version} to {new.version}")
    allowed = case.rules.edges if step.holder else case.rules.at_rest
    if not case.by_operator(step) and (old.state, new.state) not in allowed:
        case.object_to("I2", f"undeclared: {old.state} -> {new.state}")


def outcomes_have_one_start(case: Case) -> None:
    """I3."""
    starts = Counter(effect.claim for effect in case.effects)
    claims = {step.event.new.claim: step.event for step in case.steps if step.kind is Kind.CLAIM}
    for claim, count in starts.items():
        if count > 1:
            case.object_to("I3", f"claim {claim} was started {count} times")
    for effect in case.effects:
        event = claims.get(effect.claim)
        claimed = event and (event.new.version, event.new.state, event.actor)
        if claimed != (effect.version, effect.state, effect.actor):
            case.object_to("I3", f"{effect.actor} ran {effect.state}, version {effect.version}, without that claim")
    accepted = [step.event.old for step in case.steps if step.kind is Kind.MOVE and step.holder]
    for row in accepted:
        if case.rules.started and not starts[row.claim] and not _moved_by_operator(case, row):
            case.object_to("I3", f"an outcome of {row.state}, version {row.version}, without a start")
    for version, count in Counter(row.version for row in accepted).items():
        if count > 1:
            case.object_to("I3", f"version {version} has {count} outcomes")


def _moved_by_operator(case: Case, row: Any) -> bool:
    return any(step.event.old is row and case.by_operator(step) for step in case.steps)


def atomic_effects_are_accepted(case: Case) -> None:
    """I3, for states whose effects are written in the transaction of the outcome."""
    written = Counter((effect.version, effect.state) for effect in case.effects if effect.state in case.rules.atomic)
    accepted = Counter(
        (step.event.old.version, step.event.old.state)
        for step in case.steps
        if step.kind is Kind.MOVE and step.holder == step.event.actor and step.event.old.state in case.rules.atomic
    )
    for entry in written.keys() | accepted.keys():
        if written[entry] != accepted[entry]:
            case.object_to("I3", f"version, state {entry}: {written[entry]} effects, {accepted[entry]} accepted moves")


def holders_alone_write(case: Case) -> None:
    """I4."""
    started = {effect.claim for effect in case.effects}
    for step in case.steps:
        by_holder = step.event.actor == step.holder
        if step.kind in (Kind.WAIT, Kind.RELEASE) and not by_holder:
            case.object_to("I4", f"{step.event.actor} wrote {step.kind} on the claim of {step.holder}")
        if step.kind is Kind.MOVE and step.holder and not (by_holder or case.by_operator(step)):
            case.object_to("I4", f"{step.event.actor} moved what {step.holder} held")
        # Its holder unlocks a row if it gives up an attempt that had begun, which counts.
        gives_up = by_holder and (step.event.old.claim in started or not case.rules.start_is_first)
        if step.kind is Kind.UNLOCK and not (gives_up or case.by_operator(step)):
            case.object_to("I4", f"{step.event.actor} ended the claim of {step.holder}")


def claims_end_once(case: Case) -> None:
    """I5."""
    opened: dict[Any, int] = {}
    for step in case.steps:
        if step.kind in (Kind.CLAIM, Kind.STEAL):
            claim = step.event.new.claim
            if claim in opened:
                case.object_to("I5", f"claim {claim} was used again")
            opened[claim] = 0
        if step.ends_claim and step.event.old.claim in opened:
            opened[step.event.old.claim] += 1
    for claim, ends in opened.items():
        if ends > 1 or (case.rules.quiet and ends != 1):
            case.object_to("I5", f"claim {claim} has {ends} ends")


def accounts_agree(case: Case) -> None:
    """I6."""
    attempts = crashes = 0
    for step in case.steps:
        new = step.event.new
        if step.kind in (Kind.MOVE, Kind.CREATE):
            attempts = crashes = 0
        attempts += (step.kind is Kind.CLAIM) - (step.kind is Kind.RELEASE)
        crashes += step.kind is Kind.REAP
        if step.kind is Kind.WAIT or (step.kind is Kind.READY and case.by_operator(step)):
            crashes = 0
        if new and step.kind is not Kind.TAMPER and (new.attempts, new.crashes) != (attempts, crashes):
            case.object_to("I6", f"{new.attempts} attempts and {new.crashes} crashes, not {attempts} and {crashes}")
        if new:
            attempts, crashes = new.attempts, new.crashes


def nothing_is_left(case: Case) -> None:
    """I7."""
    last = case.steps[-1].event.new
    if last is None or not case.rules.quiet:
        return
    if last.claim or last.locked_until:
        case.object_to("I7", f"still locked until {last.locked_until}")
    at_rest = last.state in case.rules.terminal | case.rules.external
    if not at_rest and last.crashes < case.rules.max_crashes:
        case.object_to("I7", f"left in {last.state}, ready={last.ready}, crashes={last.crashes}")


def recovery_is_prompt(case: Case) -> None:
    """I8."""
    reaped = None
    for step in case.steps:
        if step.kind is Kind.REAP:
            reaped = step.event
            _check_delay(case, "reaped", reaped.old.locked_until, reaped.at, case.rules.reap_slack)
        elif step.kind is Kind.CLAIM and reaped:
            _check_delay(case, "claimed again", reaped.old.locked_until, step.event.at, case.rules.claim_slack)
            reaped = None
        elif step.kind is not Kind.SAVE:
            reaped = None


def keys_have_one_holder(history: History) -> list[Violation]:
    """I9."""
    found, holders = list[Violation](), dict[str, str]()
    for event in history.events:
        old, new = event.old, event.new
        if old and old.key is not None and holders.get(old.key) == event.pk:
            del holders[old.key]
        if new and new.key is not None and new.claim:
            if (other := holders.get(new.key)) is not None:
                found.append(Violation("I9", event.pk, f"holds the key {new.key!r} beside row {other}"))
            holders[new.key] = event.pk
    return found


def urgent_rows_go_first(history: History, rules: Rules) -> list[Violation]:
    """I10. Rows that lost a lease have turns of their own."""
    if rules.passed_over is None:
        return []
    found, rows, passed = list[Violation](), dict[str, Row](), Counter[str]()
    for taken in _claims_and_others(history.events):
        for event in taken:
            rows[event.pk] = event.new or GONE
            passed.pop(event.pk, None)
        claimed = [event.old.priority for event in taken if kind_of(event) is Kind.CLAIM and not event.old.crashes]
        held = {row.key for row in rows.values() if row.claim and row.key is not None}
        for pk, row in rows.items() if claimed else ():
            if _waits(row, taken[0].at) and row.key not in held and row.priority < max(claimed):
                passed[pk] += 1
                if passed[pk] == rules.passed_over + 1:
                    found.append(Violation("I10", pk, f"passed over by {passed[pk]} claims of less urgent rows"))
    return found


def _waits(row: Row, at: datetime) -> bool:
    due = row.next_attempt is None or row.next_attempt <= at
    return row.ready and due and not (row.claim or row.crashes)


def _claims_and_others(events: Iterable[Event]) -> Iterator[list[Event]]:
    """The events in order; what one statement claimed is together."""
    return (list(same) for _, same in groupby(events, key=lambda event: (event.new and event.new.claim) or object()))


def _check_delay(case: Case, what: str, since: Any, at: Any, slack: float | None) -> None:
    if slack is not None and at - since > timedelta(seconds=slack):
        case.object_to("I8", f"{what} {at - since} after its lease ended")


INVARIANTS = (
    leases_do_not_overlap, chain_is_unbroken, outcomes_have_one_start, atomic_effects_are_accepted,
    holders_alone_write, claims_end_once, accounts_agree, nothing_is_left, recovery_is_prompt,
)  # fmt: skip
