"""``stator statements``: the statements that workers send for a model, without changing a row."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from math import inf
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, transaction

from stator.commands.answer import Answer, BadInput, Options
from stator.commands.arguments import add_label, database_of, model_of
from stator.conf import load_settings
from stator.db import chores, operations_for
from stator.db.claims import AGEING
from stator.db.interface import Claim, Operations, OutcomeBatch
from stator.db.probe import answers_about, look
from stator.db.values import Params, Row
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows.claimable import Crashes
from stator.statements import numbered

HELP = "Print the statements that workers send for a model. No row is locked or changed."

# In place of statements that write, so that Django finds a result without rows.
NOTHING = "SELECT NULL FROM (SELECT 1 AS one) stator_none WHERE 1 = 0"

# The names of claims and rows in the printed values, so that two runs print equal values.
WORKER, TOKEN = "0" * 12, UUID(int=0x8 << 76 | 0x2 << 62)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

POLL, TIME_OUT = ANSWERED = ("poll", "time out")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the model."""
    parser.description = (
        f"{HELP} Each is shown with what it is for and with sample values for its parameters. Compare the output of two"
        " versions to see what an upgrade or a change of StatorMeta means for the database, or run a statement with"
        " EXPLAIN."
    )
    add_label(parser)


def run(options: Options) -> Answer:
    """Return the statements, in the order of a row's life."""
    model = model_of(options["label"])
    if model._meta.is_composite_pk:
        raise BadInput(f"{model._meta.label} has a composite primary key; its statements depend on the rows they find")
    sent = sent_for(operations_for(model, load_settings(), WORKER, database_of(options, model)))
    data = [
        {"verb": verb, "statement": text, "values": [str(value) for value in values]} for verb, text, values in sent
    ]
    lines: list[str] = []
    for verb, text, values in sent:
        lines += [f"-- {verb}", *text.strip().splitlines()]
        lines += [f"-- $1 to ${len(values)}: {', '.join(map(_shown, values))}", ""] if values else [""]
    return Answer(data, lines)


def _shown(value: object) -> str:
    # The driver's integers have types of their own.
    return str(int(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def sent_for(operations: Operations) -> list[tuple[str, str, list[object]]]:
    """Return what each statement is for, its text with numbered parameters, and sample values for them."""
    sent = _Sent(operations)
    with sent.caught():
        for verb, send in _verbs(operations):
            sent.verb = verb
            send()
    return sent.statements


class _Sent:
    """The statements that operations would send, each once."""

    def __init__(self, operations: Operations) -> None:
        self.statements: list[tuple[str, str, list[object]]] = []
        self.verb = ""
        self._operations = operations
        self._texts: set[str] = set()

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Note the statements of the block; statements that lock or write do not reach the database."""
        operations = self._operations
        lock, pk = operations.lock, _key(operations)

        def fetch(statement: str, params: Sequence[object], planner: str = "", **options: bool) -> list[Row]:
            self._note(planner + statement, params)
            # A poll and a number of moves always have an answer: here, that there is nothing.
            columns = answers_about(operations) + len(operations.conditions.stored)
            return [(0,) * columns] if self.verb in ANSWERED else []

        def locked(*args: Any, **options: Any) -> list[object]:
            lock(*args, **options)
            # One row is made up, so that the statements after the lock are sent too.
            return [pk]

        operations.fetch, operations.lock = fetch, locked
        # The shard is fixed, because it depends on the thread.
        for effect in operations.records.effects:
            if hasattr(effect, "shard"):
                effect.shard = lambda: 0
        connection = connections[operations.alias]
        # Django compiles locks of rows in a transaction only.
        with transaction.atomic(using=operations.alias), connection.execute_wrapper(self._execute):
            yield

    def _execute(
        self, execute: Callable[..., object], text: str, params: Params | None, many: bool, context: object
    ) -> object:
        self._note(text, params or ())
        # Sums always have a result, so statements that only read are sent, without their lock.
        if text.startswith("SELECT"):
            return execute(text.partition(" FOR ")[0], params, many, context)
        _, returns, columns = text.partition(" RETURNING ")
        if text.startswith("INSERT") and returns:
            # Django reads one row for the object that it inserts.
            return execute("SELECT " + ", ".join(["NULL"] * len(columns.split(","))), None, False, context)
        return execute(NOTHING, None, False, context)

    def _note(self, text: str, params: Sequence[object]) -> None:
        if text not in self._texts and not text.startswith(("SAVEPOINT", "RELEASE")):
            self._texts.add(text)
            self.statements.append((self.verb, numbered(text).replace("%%", "%"), list(params)))


def _verbs(operations: Operations) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what workers do with rows, and how."""
    states = operations.automatic
    yield POLL, lambda: look(operations)
    yield "mark ready", lambda: chores.mark_ready(operations, 100)
    for crashes in Crashes:
        verb = "claim" if crashes is Crashes.NONE else f"claim rows with {crashes.value} lost leases"
        gated = [[state] for state in states if operations.conditions.gates([state])]
        for lane in [*gated, [state for state in states if [state] not in gated]]:
            yield verb, lambda lane=lane, crashes=crashes: _claim(operations, lane, crashes)  # type: ignore[misc]
    for state in states:
        for target in sorted(state.children, key=str):
            yield f"record {state.name} to {target.name}", _recording(operations, state, Moved(target))
        yield f"record {state.name}, attempted again", _recording(operations, state, Waiting(60.0))
        yield f"record {state.name}, released", _recording(operations, state, Released())
    if states:
        claim = _claim_of(operations, states[0])
        yield "renew", lambda: operations.renew([claim])
        yield "extend", lambda: operations.extend(claim, 60.0)
        yield "undo a claim", lambda: operations.release_token(TOKEN)
    yield "reap", lambda: operations.reap(100)
    yield TIME_OUT, lambda: chores.time_out(operations, 100)


def _claim(operations: Operations, states: list[State], crashes: Crashes) -> None:
    if not states:
        return
    # The claims go by priority, by age, and from behind the place where the last claim ended.
    try:
        for _ in range(AGEING):
            operations.claim(states, 100, token=TOKEN, crashes=crashes)
    except ObjectDoesNotExist:
        # Nobody has claimed in this gated state yet, so there is no row to lock, and none is made here.
        return
    turn = operations.claims.lines.next(states)
    turn.place, turn.wait_until = (LONG_AGO, _key(operations)), inf
    operations.claim(states, 100, token=TOKEN, crashes=crashes)


def _recording(operations: Operations, state: State, outcome: Outcome) -> Callable[[], object]:
    claim = _claim_of(operations, state)
    return lambda: operations.record_batch(OutcomeBatch.of([(claim, outcome)]))


def _claim_of(operations: Operations, state: State) -> Claim:
    model = operations.model
    instance = model.__new__(model)
    values = {field.attname: None for field in model._meta.concrete_fields}
    counts = dict.fromkeys(("state_version", "state_attempts", "state_failures", "state_crashes"), 1)
    times = dict.fromkeys(("state_changed", "state_attempted", "state_locked_until"), LONG_AGO)
    own = {operations.pk_name: _key(operations), operations.state_field.attname: state.value}
    instance.__dict__.update(values, **own, **counts, **times)
    return Claim(operations, instance, state, TOKEN, 0.0)


def _key(operations: Operations) -> object:
    return operations.model._meta.pk.to_python(1)
