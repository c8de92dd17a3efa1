"""Leads workers through a schedule of bytes: who goes next, which fault happens, how much time passes."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults.checker import Rules, Violation, check
from tests.faults.events import Effect, Event, History, Kind, Row, kind_of
from tests.simulation.statements import (
    LEASE,
    MAX_CRASHES,
    NEXT,
    STATES,
    Claim,
    Held,
    Lost,
    MarkReady,
    Reap,
    Record,
    Start,
)
from tests.simulation.store import moment
from tests.simulation.workers import Worker

WORKERS = 2
HOUR = 3600.0
OPERATOR, CHORES = "operator", "chores"

# Rounds of half a lease in which all must come to rest once there are no more faults: three leases, one a crash.
ROUNDS = 6

RULES = Rules(
    start_is_first=True,
    edges=frozenset(NEXT.items()),
    terminal=frozenset({"done"}),
    initial="fresh",
    max_crashes=MAX_CRASHES,
    longest_lease=LEASE + 5.0,
    passed_over=0,
)

# The rows of a schedule by its first byte: their exclusive keys and priorities.
TABLES = (
    [(None, 0)],
    [(None, 0), (None, 0)],
    [("a", 0), ("a", 0)],
    [("a", 1), ("a", 0), (None, 0)],
)


@dataclass(slots=True)
class Run:
    """The result of a schedule: the history, what was seen in it, and the broken promises."""

    history: History
    seen: Counter[str] = field(default_factory=Counter)
    trace: list[tuple[Any, ...]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def broken(self) -> set[str]:
        return {violation.rule for violation in self.violations}

    def story(self) -> str:
        """The steps and the broken promises, one a line, to be read by people."""
        steps = [" ".join(f"{part!r}" if i else str(part) for i, part in enumerate(step)) for step in self.trace]
        return "\n".join([*steps, *map(str, self.violations)])


def schedule_of(seed: int, length: int = 60) -> bytes:
    """The schedule of a seed."""
    return random.Random(seed).randbytes(length)


def simulate(schedule: bytes, make_store: Callable[[list[Any]], Any]) -> Run:
    """Follow a schedule to its end, let the workers finish without faults, and judge the history."""
    scheduler = Scheduler(schedule, make_store)
    scheduler.follow()
    scheduler.finish()
    run = scheduler.told
    run.violations += check(run.history, replace(RULES, atomic=scheduler.store.atomic))
    return run


class Scheduler:
    """The world of one schedule: a database, its workers, and monotonic time, which no clock step touches."""

    def __init__(self, schedule: bytes, make_store: Callable[[list[Any]], Any]) -> None:
        self._bytes: Iterator[int] = iter(schedule)
        self._ended = False
        self.monotonic = 0.0
        rows = TABLES[self.draw() % len(TABLES)]
        self.store = make_store(rows)
        self.told = Run(History())
        self._rows: dict[int, Row] = {}
        self._stale: list[Held] = []
        self._written: dict[Any, Row | None] = {}
        self._names = 0
        self._observe(OPERATOR)
        self._workers = [self._start_worker() for _ in range(WORKERS)]

    def draw(self) -> int:
        """The next byte; zero once the schedule has ended, which is always the plainest choice."""
        try:
            return next(self._bytes)
        except StopIteration:
            self._ended = True
            return 0

    def follow(self) -> None:
        """Take one step for each byte that says which, until none is left."""
        while not self._ended:
            choice = self.draw()
            for most, step in STEPS:
                if choice < most:
                    step(self, choice)
                    break

    def finish(self) -> None:
        """Let all workers and chores go on until every row is at rest.

        After some leases no lock may be left, whatever the clock of the database did. A clock that was set back leaves
        due times far away; then that time passes too.
        """
        self._settle()
        left = [pk for pk, row in self._rows.items() if row.claim]
        self.told.violations += [
            Violation("I8", str(pk), "still locked three leases after the last fault") for pk in left
        ]
        if due := max((row.next_attempt for row in self._rows.values() if row.next_attempt), default=None):
            self._pass(max(0.0, (due - moment(self.store.now)).total_seconds()) + LEASE)
            self._settle()

    def _settle(self) -> None:
        for _ in range(ROUNDS):
            for place in range(WORKERS):
                self._exhaust(place)
            if self._is_over():
                return
            self._pass(LEASE / 2)
            self._chores(Reap())
            self._chores(MarkReady())

    def _is_over(self) -> bool:
        return all(_at_rest(row) for row in self._rows.values())

    def _exhaust(self, place: int) -> None:
        """Have a worker go on until it has claimed in vain in both manners."""
        in_vain = 0
        while in_vain < 2:
            request, reply = self._go_on(place, None)
            in_vain = in_vain + 1 if isinstance(request, Claim) and not reply else 0

    # Steps

    def step(self, choice: int) -> None:
        self._go_on(choice, None)

    def lose_request(self, choice: int) -> None:
        self._go_on(choice, "request")

    def lose_reply(self, choice: int) -> None:
        self._go_on(choice, "reply")

    def kill(self, choice: int) -> None:
        self.told.seen["kill"] += 1
        self.told.trace.append((self._workers[choice % WORKERS][0].name, "killed"))
        self._workers[choice % WORKERS] = self._start_worker()

    def reap(self, choice: int) -> None:
        self._chores(Reap())

    def mark_ready(self, choice: int) -> None:
        self._chores(MarkReady())

    def wait(self, choice: int) -> None:
        self._pass(1.0)

    def wait_half(self, choice: int) -> None:
        self._pass(LEASE / 2)

    def wait_long(self, choice: int) -> None:
        """Longer than a lease: a worker that is not asked meanwhile was stopped, or cut off."""
        self.told.seen["pause"] += 1
        self._pass(LEASE + 1)

    def clock_back(self, choice: int) -> None:
        self.told.seen["clock back"] += 1
        self._shift(-HOUR)

    def clock_forward(self, choice: int) -> None:
        self.told.seen["clock forward"] += 1
        self._shift(HOUR)

    def move(self, choice: int) -> None:
        state = STATES[self.draw() % len(STATES)]
        self._by_hand("move", choice, lambda pk: self.store.move(pk, state))

    def unlock(self, choice: int) -> None:
        self._by_hand("unlock", choice, self.store.unlock)

    def retry(self, choice: int) -> None:
        self._by_hand("retry", choice, self.store.retry)

    def delete(self, choice: int) -> None:
        self._by_hand("delete", choice, self.store.delete)

    def save(self, choice: int) -> None:
        """A handler saves its instance, perhaps long after its claim has ended."""
        if self._stale:
            held = self._stale[choice % len(self._stale)]
            self.told.seen["save"] += 1
            self.told.trace.append(("handler", "saves", held))
            self.store.save(held)
            self._observe("handler")

    # How they are done

    def _start_worker(self) -> tuple[Worker, Any, list[Any]]:
        self._names += 1
        worker = Worker(self._names, self.draw, lambda: self.monotonic)
        return worker, worker.run(), []

    def _go_on(self, choice: int, lost: str | None) -> tuple[Any, Any]:
        """Have a worker send its next statement; return it and its reply. ``lost``: the request or the reply is."""
        worker, steps, pending = self._workers[choice % WORKERS]
        request = pending.pop() if pending else next(steps)
        if isinstance(request, Start):
            # What a handler does to the world outside needs no connection of ours.
            lost = None
        if lost:
            self.told.seen[f"lost {lost}"] += 1
        reply = Lost() if lost == "request" else self._send(request, worker.name)
        self.told.trace.append((worker.name, request, lost, reply))
        reply = Lost() if lost else reply
        pending.append(steps.throw(reply) if isinstance(reply, Lost) else steps.send(reply))
        return request, reply

    def _send(self, request: Any, actor: str) -> Any:
        if isinstance(request, Start):
            self._stale.append(request.held)
        row = self._rows.get(request.held.pk) if isinstance(request, Record) else None
        reply = self.store.answer(request, actor, self.monotonic)
        while self.store.effects:
            held, at = self.store.effects.pop(), moment(self.store.now)
            self.told.history.effects.append(Effect(str(held.pk), held.version, held.state, held.token, at, actor))
        self._observe(actor)
        if isinstance(request, Record):
            self._note_record(request.held, reply, row)
        return reply

    def _note_record(self, held: Held, written: bool, before: Row | None) -> None:
        after = self._rows.get(held.pk)
        if not written:
            self.told.seen["fenced"] += 1
            if after and self._written.get((held.pk, held.token)) == after:
                violation = Violation("P5", str(held.pk), "a written outcome was answered with a lost lease")
                self.told.violations.append(violation)
        elif before and before.claim == held.token:
            self._written[held.pk, held.token] = after
            if before.locked_until and before.locked_until <= moment(self.store.now):
                self.told.seen["late but accepted"] += 1

    def _chores(self, request: Any) -> None:
        self.store.answer(request, CHORES, self.monotonic)
        self._observe(CHORES)

    def _by_hand(self, name: str, choice: int, act: Callable[[int], None]) -> None:
        if self._rows:
            pk = sorted(self._rows)[choice % len(self._rows)]
            self.told.seen[name] += 1
            self.told.trace.append((OPERATOR, name, pk))
            act(pk)
            self._observe(OPERATOR)

    def _pass(self, seconds: float) -> None:
        self.told.trace.append(("seconds pass", seconds))
        self.monotonic += seconds
        self.store.now += seconds

    def _shift(self, seconds: float) -> None:
        self.told.trace.append(("clock of the database", seconds))
        self.store.now += seconds

    def _observe(self, actor: str) -> None:
        """Note how the rows have changed since the last look: every statement is a transaction, so one step each."""
        rows = self.store.rows()
        if rows is self._rows:
            return
        for pk in sorted(rows.keys() | self._rows.keys()):
            old, new = self._rows.get(pk), rows.get(pk)
            if old != new:
                event = Event(str(pk), moment(self.store.now), actor, old, new)
                self.told.history.events.append(event)
                self._note(event)
        self._rows = rows

    def _note(self, event: Event) -> None:
        if kind_of(event) is Kind.REAP:
            self.told.seen["reaped"] += 1
            if event.new and event.new.crashes >= MAX_CRASHES:
                self.told.seen["quarantined"] += 1


def _at_rest(row: Row) -> bool:
    return row.claim is None and (row.state == "done" or row.crashes >= MAX_CRASHES)


# Up to which byte each step is taken: a step of a worker is the plainest, and the likeliest.
STEPS: tuple[tuple[int, Callable[[Scheduler, int], None]], ...] = (
    (128, Scheduler.step), (137, Scheduler.lose_request), (148, Scheduler.lose_reply), (158, Scheduler.kill),
    (172, Scheduler.reap), (184, Scheduler.mark_ready), (200, Scheduler.wait), (212, Scheduler.wait_half),
    (228, Scheduler.wait_long), (231, Scheduler.clock_back), (234, Scheduler.clock_forward), (240, Scheduler.move),
    (244, Scheduler.unlock), (247, Scheduler.retry), (249, Scheduler.delete), (256, Scheduler.save),
)  # fmt: skip
