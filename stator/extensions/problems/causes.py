"""Causes of problems of many: each public function yields a :class:`Problem` for each cause in a survey.

``kinds`` has the table. A cause without a code or a level gets the code or level of its kind.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from shlex import quote
from typing import Any

from stator.conf import load_settings
from stator.extensions.problems.kind import differing
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.graph.durations import longest, span
from stator.graph.failures import HUNG_AT
from stator.rows.clock import moment_text
from stator.rows.keys import shown_key
from stator.rows.problem import ERROR, TOO_LONG, WARNING, AdminAction, Problem
from stator.rows.state_column import state_field
from stator.survey.crew import START, Crew
from stator.survey.numbers import InState, WorkerStatus
from stator.texts import COUNTED, count_text, counted, listed

# How many objects and groups of errors are named.
SHOWN = 20

# Objects that are due in the far future and are named.
NAMED_FAR = 3

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

Find = Callable[[Survey], Iterable[Problem]]


def of_models(find: Callable[[Surveyed], Iterable[Problem]]) -> Find:
    """Return a function that finds causes in each model of a survey."""
    return lambda survey: (problem for one in survey.models.values() for problem in find(one))


def about(one: Surveyed, sentence: str, **rest: Any) -> Problem:
    """Return a problem of one model."""
    rest.setdefault("command", f"manage.py stator explain {one.label}")
    rest.setdefault("more", rest.get("count", 0) > COUNTED)
    return Problem(rest.pop("code", ""), sentence, where=one.label, model=one.model._meta.label_lower, **rest)


def all_in(
    one: Surveyed, label: str, condition: str, action: str = "", *, states: Iterable[str] = (), **lookups: object
) -> AdminAction:
    """Return an action on the list of all objects in a condition: those that the number of the problem counts."""
    query = {"condition": condition} if condition else {}
    if names := sorted(states):
        query |= state_field(one.model).asked(names)
    query |= {name: str(value) for name, value in lookups.items()}
    return AdminAction(label, one.model._meta.label_lower, action, query=tuple(query.items()))


def free_in(one: Surveyed, condition: str, states: Iterable[str] = ()) -> AdminAction:
    """Return a link to the objects in a condition that are not in quarantine, which is a problem of its own."""
    return all_in(one, "List", condition, states=states, state_crashes__lt=load_settings().MAX_CRASHES)


# Workers


def no_worker(survey: Survey) -> Iterator[Problem]:
    """Find models that no live worker serves; without any worker, they are one problem.

    None if the database takes no writes: a worker that is started ends at once.
    """
    if survey.refusal:
        return
    served = [one for one in survey.models.values() if one.live]
    needing = [one for one in survey.models.values() if one.needs_worker]
    if len(needing) > 1 and not served:
        yield _no_worker_at_all(needing)
    else:
        yield from map(_unserved, needing)


def _no_worker_at_all(needing: list[Surveyed]) -> Problem:
    states = [state for one in needing for state in one.unattended]
    count, cut = sum(map(_waiting_in, needing)), any(state.cut for state in states)
    names = [one.label for one in needing]
    return Problem(
        "", f"no worker is running: {count:,}{'+' if cut else ''} objects of {len(needing):,} models wait"
        f"{effects(states)}", {"models": names}, START,
        where="workers", detail=listed(names, SHOWN), count=count,
        more=cut, since=_longest(states), command="manage.py runstator",
    )  # fmt: skip


def _unserved(one: Surveyed) -> Problem:
    states = one.unattended
    count = _waiting_in(one)
    return about(
        one, f"{waits(count, any(state.cut for state in states))}, but no live worker serves it; start runstator"
        f"{effects(states)}", count=count, since=_longest(states), remedy=START,
        numbers={"models": [one.label]}, command="manage.py runstator",
    )  # fmt: skip


def _waiting_in(one: Surveyed) -> int:
    return sum(state.unclaimed for state in one.unattended)


def incomplete(one: Surveyed) -> Iterator[Problem]:
    """Find a model with a table, or an expression, that keeps statements about it from working."""
    if one.lacking:
        sentence, _, remedy = one.lacking.rpartition("; ")
        yield about(one, sentence, remedy=remedy, command="manage.py stator doctor")


def read_only(survey: Survey) -> Iterator[Problem]:
    """Find that the database takes no writes."""
    if survey.refusal:
        sentence, _, remedy = survey.refusal.partition("; ")
        yield Problem(
            "", f"{sentence}: no object moves, and runstator exits with 75", remedy=remedy,
            where=f"database {survey.using!r}",
        )  # fmt: skip


def unread(survey: Survey) -> Iterable[Problem]:
    """Return why not everything could be read, each reason once."""
    return {id(problem): problem for problem in survey.unread.values()}.values()


def silent_workers(survey: Survey) -> Iterator[Problem]:
    """Find workers that fell silent while they held objects."""
    for process in survey.workers.missed:
        counts = {label: list(runs) for label, runs in groupby(sorted(process.runs, key=itemgetter(0)), itemgetter(0))}
        crews = {label: survey.models[label].crew for label in counts}
        alone = any(crew.is_missing for crew in crews.values())
        held = ", ".join(f"{len(runs):,} of {survey.models[label].label}" for label, runs in counts.items())
        actions = tuple(
            AdminAction("Unlock", label, "stator_unlock", tuple(held.pk for _, held in runs[:SHOWN]))
            for label, runs in counts.items()
        )
        label, runs = next(iter(counts.items()))
        keys = keys_as_arguments(held.pk for _, held in runs[:SHOWN])
        yield Problem(
            "", f"{process.worker.host}, process {process.worker.pid}, is {process.silence}; it "
            f"holds {counted(len(process.runs), 'object')} ({held}), {_taken_over(process, crews.values())}",
            {"worker": process.worker.pk, "models": [survey.models[label].label for label in counts]},
            where=f"worker {process.worker.pk}", count=len(process.runs), since=process.heard,
            remedy=f"Make sure that the process is gone{f', then {START}' if alone else ''}.", actions=actions,
            command="manage.py runstator" if alone
            else f"manage.py stator unlock {survey.models[label].label} {keys}",
        )  # fmt: skip


def deaf_workers(survey: Survey) -> Iterator[Problem]:
    """Find live workers that receive no notifications."""
    interval = span(load_settings().POLL_INTERVAL)
    for process in survey.workers.processes:
        if process.status == "alive" and process.deaf:
            yield Problem(
                "", f"{process.worker.host}, process {process.worker.pid}, receives no notifications, so it finds new "
                f"objects by polls, up to {interval} late: {'; '.join(process.deaf.values())}",
                {"worker": process.worker.pk}, "mend what the message says; behind a pooler set LISTEN_DSN to a direct "
                "connection, or NOTIFY to False", where=f"worker {process.worker.pk}",
                command="manage.py stator workers",
            )  # fmt: skip


def same_names(survey: Survey) -> Iterator[Problem]:
    """Find live workers that share a name."""
    named = defaultdict(list)
    for process in survey.workers.processes:
        # A process that another one has replaced is not heard of any more in a moment.
        if process.status == "alive" and process.worker.name and not process.ending:
            named[process.worker.name].append(process.worker)
    for name, workers in named.items():
        if len(workers) > 1:
            places = ", ".join(f"{worker.host}, process {worker.pid}" for worker in workers[:SHOWN])
            yield Problem(
                "", f"{len(workers)} live workers have this name ({places}), so the rules of queues take them for one: "
                "worker_ids, one_per_worker, and who has had a task", {"workers": [worker.pk for worker in workers]},
                "give each a --name of its own, or none", where=f"worker {name}", count=len(workers),
                command="manage.py stator workers",
            )  # fmt: skip


def _taken_over(process: WorkerStatus, crews: Iterable[Crew]) -> str:
    left = max(-held.late for _, held in process.runs)
    return min(crews, key=lambda crew: crew.live).takes_over(left, span(left))


def late_leases(survey: Survey) -> Iterator[Problem]:
    """Find leases that ran out and that nobody has taken over."""
    patience = 2 * load_settings().REAP_INTERVAL + 1
    orphaned = survey.workers.orphaned
    for label, one in survey.models.items():
        free = [held for held in one.depths.held if (label, held.pk) not in orphaned]
        # Without a live worker nobody takes them over; a worker that has just started has not had the time.
        late = [held for held in free if (one.crew.fault(held.late) if one.live else held.late) > patience]
        if late:
            keys = tuple(held.pk for held in late[:SHOWN])
            cut = "leased" in one.depths.capped
            yield about(
                one, f"{count_text(len(late), cut)} lease{'' if len(late) == 1 else 's'} expired and not taken over: "
                "the holder died or hangs", more=cut, count=len(late), since=max(held.late for held in late),
                remedy=f"{START}, or unlock" if one.crew.is_missing else "look at the log of the workers, or unlock",
                actions=(AdminAction("Unlock", label, "stator_unlock", keys),),
                command=f"manage.py stator unlock {one.label} {keys_as_arguments(keys)}",
            )  # fmt: skip


def versions(one: Surveyed) -> Iterator[Problem]:
    """Find that live workers and this process have different graphs."""
    label = one.model._meta.label
    return differing(label, one.versions, "versions of its graph run", "in options or transitions")


# Objects


def quarantined(one: Surveyed) -> Iterator[Problem]:
    """Find objects in quarantine."""
    if count := one.depths.quarantined:
        them = "it" if count == 1 else "them"
        hung = [place for group in one.groups if (place := group.message.partition(HUNG_AT)[2].partition("\n")[0])]
        yield about(
            one, f"{count_text(count)} quarantined: workers died while they attempted {them}, so none attempts "
            f"{them} again",
            count=count,
            actions=(all_in(one, "Retry", "quarantined", "stator_retry"),),
            remedy="find out what ended the workers, then retry", detail=HUNG_AT + listed(hung) if hung else "",
            command=f"manage.py stator retry {one.label} --quarantined",
        )  # fmt: skip


def unknown_states(one: Surveyed) -> Iterator[Problem]:
    """Find objects in states that this code does not know."""
    nobodys = {name: count for name, count in one.unknown_states.items() if name not in one.knowing}
    theirs = {name: count for name, count in one.unknown_states.items() if name in one.knowing}
    if count := sum(nobodys.values()):
        names = sorted(nobodys)
        yield about(
            one, f"{count_text(count)} in a state that neither this code nor a live worker knows: "
            f"{', '.join(names[:SHOWN])}",
            count=count, remedy="deploy the code that has the state, or move them by hand",
            numbers={"states": names}, actions=(all_in(one, f"Move{ELLIPSIS}", "", "stator_move", states=names),),
            command=f"manage.py stator move {one.label} STATE --state {quote(names[0])} --reason WHY",
        )  # fmt: skip
    if count := sum(theirs.values()):
        who = listed([f"{name} ({listed(one.knowing[name])})" for name in sorted(theirs)])
        yield about(
            one, f"{count_text(count)} in a state that this code does not know, but live workers do: {who}",
            level=WARNING, count=count, numbers={"states": sorted(theirs)},
            actions=(all_in(one, "List", "", states=theirs),),
            remedy="wait; if these workers stop for good, move them by hand",
        )  # fmt: skip


def stuck(one: Surveyed) -> Iterator[Problem]:
    """Find objects that are in their state for longer than expected."""
    there = [state for name, state in one.depths.states.items() if state.stuck and name not in covered(one)]
    states = [state for state in there if state.stuck > one.counted[state.name]]
    if states:
        count, names = sum(state.stuck for state in states), ", ".join(state.name for state in states)
        oldest = max(state.oldest or 0.0 for state in states)
        yield about(
            one, f"{count_text(count, any(state.cut for state in states))} later than expected in {names}, "
            f"up to {span(oldest)}", count=count, since=oldest,
            actions=(free_in(one, "stuck", [state.name for state in states]),),
        )  # fmt: skip


def slow(one: Surveyed) -> Iterator[Problem]:
    """Find objects that have been due for long although a worker is alive."""
    # If the framework knows no worker of the model, the model itself says who serves it.
    free = [state for state in one.depths.automatic if state.name not in covered(one)]
    fault = one.crew.fault if one.live else (lambda waited: waited or 0.0)
    states = [state for state in free if fault(state.longest_wait) > TOO_LONG]
    ready = sum(state.ready for state in states)
    if states and not one.needs_worker:
        many = waits(ready) if ready else "objects are due"
        taken = (
            f", and {counted(one.live, 'live worker')} {'has' if one.live == 1 else 'have'} not taken it"
            if one.live else ""
        )  # fmt: skip
        names = [state.name for state in states]
        yield about(
            one, f"{many} in {', '.join(names)}{done_when(one, ready, states)}; the first has waited "
            f"{span(_longest(states) or 0.0)}{taken}", count=ready,
            since=_longest(states), actions=(free_in(one, "ready" if ready else "overdue", names),),
            remedy="start more workers, or look for attempts that take long",
        )  # fmt: skip


def failing(one: Surveyed) -> Iterator[Problem]:
    """Find failing objects, by their error; quarantined ones have a problem of their own, as an app may have."""
    by_app = Counter[str]()
    for own in one.own:
        by_app.update(own.numbers.get("errors", {}))
    counts = [(group, len(group.failing) - group.quarantined - by_app[group.fingerprint]) for group in one.groups]
    failing = [(group, count) for group, count in counts if count > 0]
    for group, count in failing[:SHOWN]:
        yield about(
            one, f"{count_text(count, group.cut)} failing in {group.state} with {group.error}",
            detail=group.message.partition("\n")[0],
            count=count, more=group.cut, numbers={"fingerprint": group.fingerprint, "attempts": group.attempts},
            command=f"manage.py stator retry {one.label} --error {group.fingerprint} --per-minute 60",
        )  # fmt: skip
    named = sum(count for _, count in failing[:SHOWN]) + by_app.total()
    if (rest := one.depths.failing - named) > 0:
        further = (
            "" if any(group.cut for group, _ in failing) else f", {count_text(rest)} of them with other errors, or none"
        )
        free = all_in(
            one, "List", "failing", state_crashes__lt=load_settings().MAX_CRASHES, state_claim__isnull=True
        )  # fmt: skip
        yield about(
            one, f"{count_text(one.depths.failing)} failing{f' in all{further}' if named else ''}", count=rest,
            actions=(free,), command=f"manage.py stator retry {one.label} --failed",
        )  # fmt: skip


def far_future(one: Surveyed) -> Iterator[Problem]:
    """Find objects that are due only in the far future."""
    if not (count := one.depths.far.total()):
        return
    names, first = ", ".join(sorted(one.depths.far)), one.depths.far_first
    pks = tuple(far.pk for far in first)
    yield about(
        one, f"{count_text(count)} in {names} {'is' if count == 1 else 'are'} due in more than a year"
        f"{f', the first on {moment_text(first[0].due)}' if first else ''}", count=count,
        actions=(all_in(one, "Retry now", "far", "stator_retry"), all_in(one, "List", "far")),
        detail=hashed(pks[:NAMED_FAR]),
        remedy="if the due time is wrong, retry; if it is meant, give the state an expect_within as long",
        command=f"manage.py stator retry {one.label} {keys_as_arguments(pks) if count <= NAMED_FAR else '--far'}",
    )  # fmt: skip


def keys_as_arguments(pks: Iterable[object]) -> str:
    """Return keys as arguments of a command."""
    return " ".join(quote(shown_key(pk)) for pk in pks)


def hashed(pks: Sequence[object]) -> str:
    """Return keys for people."""
    return listed(f"#{shown_key(pk)}" for pk in pks)


# Effects of a cause


def covered(one: Surveyed) -> set[str]:
    """Return the automatic states whose objects wait because of another problem, which reports their waiting."""
    names = {state.name for state in one.depths.automatic}
    if one.needs_worker or any(problem.level == ERROR for problem in one.unserved):
        return names
    return names & (one.left_out | one.covered | {name for own in one.own for name in own.covers})


def effects(states: list[InState]) -> str:
    """Return what a cause did to the objects in some states, as the end of a sentence."""
    waited, late = _longest(states) or 0.0, sum(state.stuck for state in states)
    said = f"; the first has waited {span(waited)}" if waited > TOO_LONG else ""
    return f"{said}; {count_text(late)} later than expected" if late else said


def done_when(one: Surveyed, count: int, states: list[InState]) -> str:
    """Return when so many objects are done, as a part of a sentence; empty if that is not known."""
    estimate = one.estimate(count, states)
    return f" {estimate}" if estimate else ""


def _longest(states: list[InState]) -> float | None:
    return longest(state.longest_wait for state in states)


def waits(count: int, cut: bool = False) -> str:
    """Return how many objects wait, as the beginning of a sentence."""
    return f"{count_text(count, cut)} {'waits' if count == 1 else 'wait'}"
