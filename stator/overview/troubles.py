"""The table of troubles: how to find each kind. The overview, ``doctor``, ``status`` and metrics show this list."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from shlex import quote
from typing import Any

from stator.conf import load_settings
from stator.explain.sentences import counted
from stator.explain.troubles import ERROR, WARNING, Remedy, Trouble
from stator.graph import State
from stator.graph.durations import span
from stator.models import StatorModel
from stator.overview.awaited import Awaited
from stator.overview.crew import Hand
from stator.overview.depths import COUNTED, InState, told
from stator.overview.survey import Survey, Surveyed, survey
from stator.rows.meta import by_database
from stator.rows.pauses import NAMED, Pause
from stator.rows.versions import listed

# Seconds after which the first object that is due has waited for too long, and after which a pause may be forgotten.
TOO_LONG, FORGOTTEN = 60.0, 86400.0

# Objects and groups of errors that are named.
SHOWN = 20

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of trouble. ``find`` yields one value for each cause; those without a code or a level get the kind's."""

    code: str
    level: str
    find: Callable[[Survey], Iterator[Trouble]]


def troubles(models: Iterable[type[StatorModel]]) -> list[Trouble]:
    """Return the troubles of models in the databases to which they are written, the worst first."""
    parts = by_database(models).items()
    return in_order(one for alias, part in parts for one in troubles_in(survey(alias, part)))


def troubles_in(found: Survey) -> list[Trouble]:
    """Return the troubles of one database; reads nothing."""
    own = [trouble for one in found.models.values() for trouble in one.own]
    made = [
        replace(trouble, code=trouble.code or kind.code, level=trouble.level or kind.level)
        for kind in KINDS
        for trouble in kind.find(found)
    ]
    return in_order([*made, *own])


def in_order(found: Iterable[Trouble]) -> list[Trouble]:
    """Return troubles, the worst first."""
    places = {kind.code: place for place, kind in enumerate(KINDS)}
    return sorted(found, key=lambda one: (one.level != ERROR, places.get(one.code, len(places)), -one.count, one.where))


def _of_models(find: Callable[[Surveyed], Iterator[Trouble]]) -> Callable[[Survey], Iterator[Trouble]]:
    return lambda found: (trouble for one in found.models.values() for trouble in find(one))


def _about(one: Surveyed, sentence: str, **rest: Any) -> Trouble:
    rest.setdefault("command", f"manage.py stator explain {one.label}")
    code, level = rest.pop("code", ""), rest.pop("level", "")
    return Trouble(code, level, one.label, sentence, one.model._meta.label_lower, **rest)


def _all(one: Surveyed, label: str, condition: str, action: str = "") -> Remedy:
    return Remedy(label, one.model._meta.label_lower, action, query=(("condition", condition),))


# Workers


def _no_worker(one: Surveyed) -> Iterator[Trouble]:
    if not one.needs_worker:
        return
    states = _automatic(one)
    ready = sum(state.ready for state in states)
    what = f"{told(ready)} {'waits' if ready == 1 else 'wait'}" if ready else "objects are due"
    yield _about(
        one, f"{what}, but no live worker serves it; start runstator{_effects(states)}", count=ready,
        more=ready > COUNTED, since=_longest(states), advice="start manage.py runstator",
        command="manage.py runstator",
    )  # fmt: skip


def _unserved(one: Surveyed) -> Iterator[Trouble]:
    for notice in one.notices:
        if not notice.served and notice.code != "no_worker":
            yield _about(
                one, f"{notice.counted} ready that no live worker serves", count=notice.count, more=notice.more,
                detail=f"in {notice.group}. {notice.sentence}", advice=notice.remedy,
                numbers={"reason": notice.code, "group": notice.group},
            )  # fmt: skip


def _silent_workers(found: Survey) -> Iterator[Trouble]:
    for hand in found.crew.missed:
        counts = {label: list(runs) for label, runs in groupby(sorted(hand.runs, key=_label), _label)}
        held = ", ".join(f"{len(runs):,} of {found.models[label].label}" for label, runs in counts.items())
        remedies = tuple(
            Remedy("Unlock", label, "stator_unlock", tuple(held.pk for _, held in runs[:SHOWN]))
            for label, runs in counts.items()
        )
        label, runs = next(iter(counts.items()))
        keys = _keys(held.pk for _, held in runs[:SHOWN])
        yield Trouble(
            "", "", f"worker {hand.worker.pk}",
            f"{hand.worker.host}, process {hand.worker.pid}, is silent for {span(hand.heard)} and {hand.end}; "
            f"it holds {counted(len(hand.runs), 'object')} ({held}), which live workers take over {_expiry(hand)}",
            count=len(hand.runs), since=hand.heard, numbers={"worker": hand.worker.pk}, remedies=remedies,
            advice="Make sure that the process is gone; start manage.py runstator if no other worker is live.",
            command=f"manage.py stator unlock {found.models[label].label} {keys}",
        )  # fmt: skip


def _deaf_workers(found: Survey) -> Iterator[Trouble]:
    interval = span(load_settings().POLL_INTERVAL)
    for hand in found.crew.workers:
        if hand.status == "alive" and hand.deaf:
            yield Trouble(
                "", "", f"worker {hand.worker.pk}",
                f"{hand.worker.host}, process {hand.worker.pid}, receives no notifications, so it finds new objects by "
                f"polls, up to {interval} late: {'; '.join(hand.deaf.values())}",
                numbers={"worker": hand.worker.pk}, command="manage.py stator workers",
                advice="mend what the message says; behind a pooler set LISTEN_DSN to a direct connection, or NOTIFY "
                "to False",
            )  # fmt: skip


def _label(run: tuple[str, Any]) -> str:
    return run[0]


def _expiry(hand: Hand) -> str:
    left = max(-held.late for _, held in hand.runs)
    return f"after their leases, within {span(left)}" if left > 0 else "now: their leases are over"


def _late_leases(found: Survey) -> Iterator[Trouble]:
    patience = 2 * load_settings().REAP_INTERVAL + 1
    silent = {id(held) for hand in found.crew.missed for _, held in hand.runs}
    for one in found.models.values():
        late = [held for held in one.depths.held if held.late > patience and id(held) not in silent]
        if late:
            keys = tuple(held.pk for held in late[:SHOWN])
            yield _about(
                one, f"{counted(len(late), 'lease')} expired and not taken over: the holder died or hangs",
                count=len(late), since=max(held.late for held in late), advice="start manage.py runstator, or unlock",
                remedies=(Remedy("Unlock", one.model._meta.label_lower, "stator_unlock", keys),),
                command=f"manage.py stator unlock {one.label} {_keys(keys)}",
            )  # fmt: skip


def _versions(one: Surveyed) -> Iterator[Trouble]:
    for each in one.differences:
        yield Trouble(
            "", "", each.label, each.sentence.rstrip("."), one.model._meta.label_lower,
            advice="restart the processes that run the old code; until then each works only on what it knows",
        )  # fmt: skip


# Objects


def _quarantined(one: Surveyed) -> Iterator[Trouble]:
    if count := one.depths.quarantined:
        them = "it" if count == 1 else "them"
        yield _about(
            one, f"{told(count)} quarantined: workers died while they attempted {them}", count=count,
            more=count > COUNTED, remedies=(_all(one, "Retry", "quarantined", "stator_retry"),),
            advice="find out what ended the workers, then retry",
            command=f"manage.py stator retry {one.label} --quarantined",
        )  # fmt: skip


def _unknown(one: Surveyed) -> Iterator[Trouble]:
    nobodys = {name: count for name, count in one.depths.unknown_states.items() if name not in one.knowing}
    theirs = {name: count for name, count in one.depths.unknown_states.items() if name in one.knowing}
    if count := sum(nobodys.values()):
        # The list has both, and only these are lost.
        move = _all(one, f"Move{ELLIPSIS}", "unknown", "stator_move")
        names = sorted(nobodys)
        yield _about(
            one, f"{told(count)} in a state that neither this code nor a live worker knows: {', '.join(names[:SHOWN])}",
            count=count, more=count > COUNTED, advice="deploy the code that has the state, or move them by hand",
            numbers={"states": names}, remedies=(_all(one, "List", "unknown") if theirs else move,),
            command=f"manage.py stator move {one.label} STATE --state {quote(names[0])} --reason WHY",
        )  # fmt: skip
    if count := sum(theirs.values()):
        who = listed([f"{name} ({listed(one.knowing[name])})" for name in sorted(theirs)])
        yield _about(
            one, f"{told(count)} in a state that this code does not know, but live workers do: {who}",
            level=WARNING, count=count, more=count > COUNTED, numbers={"states": sorted(theirs)},
            remedies=(_all(one, "List", "unknown"),), advice="wait; if these workers stop for good, move them by hand",
        )  # fmt: skip


def _stuck(one: Surveyed) -> Iterator[Trouble]:
    there = [state for name, state in one.depths.states.items() if state.stuck and name not in covered(one)]
    states = [state for state in there if state.stuck > _told_as_waiting(one, state)]
    if states:
        count, names = sum(state.stuck for state in states), ", ".join(state.name for state in states)
        oldest = max(state.oldest or 0.0 for state in states)
        yield _about(
            one, f"{told(count, any(state.cut for state in states))} later than expected in {names}, "
            f"up to {span(oldest)}", count=count, since=oldest, remedies=(_all(one, "List", "stuck"),),
        )  # fmt: skip


def _slow(one: Surveyed) -> Iterator[Trouble]:
    # Without a worker that is known to the framework, the model itself says who serves it.
    states = [state for state in _automatic(one) if state.name not in covered(one) and _waits_long(state)]
    ready = sum(state.ready for state in states)
    # Quarantined objects stay in the line.
    if states and not one.needs_worker and not 0 < ready <= one.depths.quarantined:
        many = f"{told(ready)} {'waits' if ready == 1 else 'wait'}" if ready else "objects are due"
        yield _about(
            one, f"{many} in {', '.join(state.name for state in states)}; the first has waited "
            f"{span(_longest(states) or 0.0)}, and {counted(one.live, 'live worker')} "
            f"{'has' if one.live == 1 else 'have'} not taken it", count=ready,
            more=ready > COUNTED, since=_longest(states), remedies=(_all(one, "List", "overdue"),),
            advice="start more workers, or look for attempts that take long",
        )  # fmt: skip


def _full_limits(one: Surveyed) -> Iterator[Trouble]:
    for state in _full(one):
        held = sorted((held for held in one.depths.held if held.state == state.name), key=lambda held: -held.running)
        limit, pks = _limit(state.state), tuple(held.pk for held in held[:SHOWN])
        yield _about(
            one, f"{told(state.ready)} {'waits' if state.ready == 1 else 'wait'} in {state.name}: limit "
            f"{len(held):,} of {limit:,}{_effects([state])}", count=state.ready, since=state.waited,
            detail=f"held by {_hashed(pks)}, the longest for {span(held[0].running)}" if held else "",
            remedies=(
                _all(one, "List", "leased"),
                Remedy(f"Unlock{ELLIPSIS}", one.model._meta.label_lower, "stator_unlock", pks),
            ),
            numbers={"limit": limit, "claimed": len(held)},
            advice="unlock attempts that hang; else wait, or have a developer raise the limit",
            command=f"manage.py stator unlock {one.label} {_keys(pks)}",
        )  # fmt: skip


def _failing(one: Surveyed) -> Iterator[Trouble]:
    failing = [group for group in one.groups if group.failing]
    for group in failing[:SHOWN]:
        count = len(group.failing)
        yield _about(
            one, f"{count:,} failing in {group.state} with {group.error}", detail=group.message.partition("\n")[0],
            count=count, numbers={"fingerprint": group.fingerprint, "attempts": group.attempts},
            command=f"manage.py stator retry {one.label} --error {group.fingerprint} --per-minute 60",
        )  # fmt: skip
    named = sum(len(group.failing) for group in failing[:SHOWN])
    if (rest := one.depths.failing - named) > 0:
        yield _about(
            one, f"{told(rest)} {'more ' if named else ''}failing", count=rest, more=rest > COUNTED,
            remedies=(_all(one, "List", "failing"),), command=f"manage.py stator retry {one.label} --failed",
        )  # fmt: skip


def _far_future(one: Surveyed) -> Iterator[Trouble]:
    if not (count := one.depths.far.total()):
        return
    names, first = ", ".join(sorted(one.depths.far)), one.depths.far_first
    pks = tuple(far.pk for far in first)
    label = one.model._meta.label_lower
    named = [Remedy("Retry now", label, "stator_retry", pks)] if count <= len(pks) else []
    yield _about(
        one, f"{told(count)} in {names} {'is' if count == 1 else 'are'} due in more than a year"
        f"{f', the first in {span(first[0].due)}' if first else ''}", count=count, more=count > COUNTED,
        detail=_hashed(pks), remedies=(*named, _all(one, "List", "far")),
        advice="if the due time is wrong, retry; if it is meant, give the state an expect_within as long",
        command=f"manage.py stator retry {one.label} {_keys(pks)}",
    )  # fmt: skip


def _waiting(one: Surveyed) -> Iterator[Trouble]:
    for each in [each for each in one.awaited if _waits_too_long(one, each)][:SHOWN]:
        label, what = each.model._meta.label, "ended in" if each.ended else "is in"
        many = f"{told(each.count, each.more)} {'waits' if each.count == 1 else 'wait'}"
        *others, last = each.until
        until = f"{', '.join(others)} or {last}" if others else last
        never = "; it does not get further by itself" if each.ended else ""
        yield _about(
            one, f"{many} in {each.waiting_in} for one {label}, which {what} {each.state}; the first has waited "
            f"{span(each.longest)}", level=ERROR if each.ended else WARNING, count=each.count, more=each.more,
            detail=f"#{each.pk} has to be in {until}{never}", since=each.longest,
            numbers={"awaited": each.model._meta.label_lower, "pk": each.pk, "until": list(each.until)},
            remedies=(Remedy(f"Move{ELLIPSIS}", each.model._meta.label_lower, "stator_move", (each.pk,)),),
            advice="find out what keeps it there, or move it",
            command=f"manage.py stator move {label} STATE {_keys([each.pk])} --reason WHY",
        )  # fmt: skip


def _told_as_waiting(one: Surveyed, state: InState) -> int:
    return sum(each.count for each in one.awaited if each.waiting_in == state.name and _waits_too_long(one, each))


def _waits_too_long(one: Surveyed, each: Awaited) -> bool:
    state = one.depths.states[each.waiting_in].state
    most = (state.expect_within if state else None) or FORGOTTEN
    return each.ended or each.longest > most


def _keys(pks: Iterable[Any]) -> str:
    """Return keys as arguments of a command."""
    return " ".join(quote(str(pk)) for pk in pks)


def _hashed(pks: Sequence[Any]) -> str:
    return ", ".join(f"#{pk}" for pk in pks[:5]) + (", ..." if len(pks) > 5 else "")


# Pauses


def _paused(found: Survey) -> Iterator[Trouble]:
    for pause in found.pauses:
        if (one := found.models.get(pause.model_label)) is not None:
            yield _of_pause(one, pause)


def _of_pause(one: Surveyed, pause: Any) -> Trouble:
    age = max(0.0, (pause.read_at - pause.created).total_seconds())
    states = [] if pause.where else [state for state in _automatic(one) if pause.state in ("", state.name)]
    ready = sum(state.ready for state in states)
    waiting = f"; {told(ready)} {'waits' if ready == 1 else 'wait'}" if ready else ""
    by = f" by {pause.actor}" if pause.actor else ""
    until = f", until {pause.until:%Y-%m-%d %H:%M %Z}" if pause.until else ", without an end"
    why = f" ({pause.reason})" if pause.reason else ""
    where = "".join(f" --where {quote(f'{name}={json.dumps(value)}')}" for name, value in pause.where.items())
    return _about(
        one, f"paused: {_paused_part(pause)}{by} for {span(age)}{until}{why}{waiting}{_effects(states)}",
        code="stale_pause" if age > FORGOTTEN and pause.until is None else "", detail=_paused_objects(pause),
        count=ready, since=age, numbers={"pause": pause.pk},
        remedies=(Remedy("Resume", Pause._meta.label_lower, "stator_end", (pause.pk,)),),
        command=f"manage.py stator resume {one.label}{f' --state {pause.state}' if pause.state else ''}{where}",
    )  # fmt: skip


def _paused_part(pause: Pause) -> str:
    if isinstance(named := pause.where.get(NAMED), list):
        return counted(len(named), "object")
    if pause.where:
        return f"some objects{f' in {pause.state}' if pause.state else ''}"
    return pause.state or "all states"


def _paused_objects(pause: Pause) -> str:
    if isinstance(named := pause.where.get(NAMED), list):
        return _hashed(named)
    return ", ".join(f"{name}={value}" for name, value in pause.where.items())


# Effects of a cause


def covered(one: Surveyed) -> set[str]:
    """Return the automatic states whose objects wait because of another trouble, which tells of that."""
    names = {state.name for state in _automatic(one)}
    whole = {pause.state for pause in one.pauses if not pause.where}
    unserved = any(not notice.served and notice.code != "no_worker" for notice in one.notices)
    if one.needs_worker or "" in whole or unserved:
        return names
    return names & (whole | {state.name for state in _full(one)} | {name for own in one.own for name in own.covers})


def _full(one: Surveyed) -> list[InState]:
    return [
        state
        for state in _automatic(one)
        if _limit(state.state) and state.leased >= _limit(state.state) and (state.waited or 0.0) > TOO_LONG
    ]


def _limit(state: State | None) -> int:
    return (state.concurrency or 0) if state else 0


def _automatic(one: Surveyed) -> list[InState]:
    return [state for state in one.depths.states.values() if state.state is not None and state.state.automatic]


def _effects(states: list[InState]) -> str:
    """Return what a cause did to the objects in some states, as the end of a sentence."""
    longest, late = _longest(states), sum(state.stuck for state in states)
    said = f"; the first has waited {span(longest)}" if longest is not None and longest > TOO_LONG else ""
    return f"{said}; {told(late)} later than expected" if late else said


def _longest(states: list[InState]) -> float | None:
    waits = [wait for state in states for wait in (state.waited, state.unmarked) if wait is not None]
    return max(waits, default=None)


def _waits_long(state: InState) -> bool:
    return (_longest([state]) or 0.0) > TOO_LONG


# The worst first.
KINDS = (
    Kind("no_worker", ERROR, _of_models(_no_worker)),
    Kind("unserved", ERROR, _of_models(_unserved)),
    Kind("silent_worker", ERROR, _silent_workers),
    Kind("late_leases", ERROR, _late_leases),
    Kind("quarantined", ERROR, _of_models(_quarantined)),
    Kind("unknown_state", ERROR, _of_models(_unknown)),
    Kind("stuck", ERROR, _of_models(_stuck)),
    Kind("slow", ERROR, _of_models(_slow)),
    Kind("full_limit", WARNING, _of_models(_full_limits)),
    Kind("waiting", WARNING, _of_models(_waiting)),
    Kind("far_future", WARNING, _of_models(_far_future)),
    Kind("deaf_worker", WARNING, _deaf_workers),
    Kind("versions", WARNING, _of_models(_versions)),
    Kind("paused", WARNING, _paused),
    Kind("failing", WARNING, _of_models(_failing)),
)
