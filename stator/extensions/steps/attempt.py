"""Durable steps: what one attempt does once, and later attempts in the same visit of the state get without a call.

The record of a step is one statement: it inserts what it selects from the row that the claim holds. It is committed
before the step returns. If the claim has ended, it finds no row and records nothing.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import iscoroutine
from itertools import chain, repeat
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, CharField, Exists, Model, QuerySet, Subquery, TextField, UUIDField
from django.db.models.constants import OnConflict

from stator.asynchronous import has_loop
from stator.capabilities import capabilities_of
from stator.db.repeat import retried
from stator.db.retry import is_outage
from stator.db.values import Row
from stator.exceptions import LeaseLost, StepRefused
from stator.extensions.progress.models import REACHED, Reached
from stator.extensions.steps.models import STEP_LENGTH, Step, steps_of_visit
from stator.graph.kept import Kept
from stator.querysets import HeldClaim, running_part
from stator.rows.clock import Now, seconds_ahead
from stator.rows.keys import key_lookups, key_values
from stator.statements import Parameter, Statement, StatementCache, fetch_all, selecting
from stator.texts import Json

if TYPE_CHECKING:
    from stator.db.interface import Claim, Operations

Result = TypeVar("Result")

# How long a record waits for a lock: a worker's other statements give up after a moment, and the step's call would be
# repeated.
WAITING = "SET LOCAL lock_timeout = '60s'; "

# The columns of a step in the order of the statement that records it.
COLUMNS = (
    "model_label", "object_pk", "entered", "name", "state", "result", "at", "attempt", "claim", "life", "visit"
)  # fmt: skip

# What the unique constraint of version 1.1 names, which its workers' statements need.
TARGET = ["model_label", "object_pk", "entered", "name"]

ENCODER = DjangoJSONEncoder(allow_nan=False)


class _Life(NamedTuple):
    """What a statement says of a :class:`~stator.rows.life.Life`."""

    number: Parameter
    unmarked: Parameter
    visit: Parameter


_LIFE = _Life(*(Parameter(name, BigIntegerField()) for name in _Life._fields))

_statements: StatementCache[Statement] = StatementCache()


class Steps:
    """The steps of one attempt. ``in_time``: the lease may not have run out, as for all claims of programs."""

    def __init__(self, claim: HeldClaim, *, in_time: bool = False) -> None:
        self._claim = claim
        self._in_time = in_time
        self._lock = Lock()
        self._used = set[str]()
        # How many steps this attempt has recorded, and how many records of earlier ones it has returned.
        self.recorded = self.reused = 0
        # The progress that the steps have set.
        self._said: Reached | None = None
        # The results of steps by name, as JSON; None until they are read.
        self._done: dict[str, str] | None = None

    def begin_again(self) -> None:
        """Let the project's code, which is called once more within the attempt, use the names of steps again."""
        self._used.clear()
        self._done = None

    def call(self, name: str, function: Callable[[], Result]) -> Result:
        """Return the recorded result of a step, or call the function and record what it returns."""
        self._refuse_on_loop(name)
        with self._using(name):
            self.check_place(name)
            done = self.read()
            if name not in done:
                with self._running(name):
                    value: object = function()
                return self.record(name, value)
        return self._restored(done[name])

    async def acall(self, name: str, function: Callable[[], Awaitable[Result]]) -> Result:
        """Do :meth:`call` with a coroutine function."""
        with self._using(name):
            done = await sync_to_async(self._checked)(name)
            if name not in done:
                with self._running(name):
                    value: object = await function()
                kept: Result = await sync_to_async(self.record)(name, value)
                return kept
        return self._restored(done[name])

    def _restored(self, text: str) -> Json:
        self.reused += 1
        return json.loads(text)

    def _checked(self, name: str) -> dict[str, str]:
        self.check_place(name)
        return self.read()

    def read(self) -> dict[str, str]:
        """Return the results, as JSON, that the visit has had before or in this attempt; the first call reads them."""
        if self._done is None:
            operations = self._claim.operations
            rows = retried(operations, _read)(self._claim)
            if any(visit is None for *_, visit in rows):
                retried(operations, _note_visit)(self._claim)
            self._done = {name: result for name, result, _ in rows}
            USED.add(operations.label)
        return self._done

    def record(self, name: str, value: object) -> Json:
        """Record the result of a step, and return it as JSON has it; raise ``LeaseLost`` if the claim has ended."""
        claim = self._claim
        self._check_name(name)
        text = self._json(name, value)
        if not self._recorded(name, text):
            # An earlier try may have been committed although no answer came.
            mine = _recorded(claim).filter(name=name, claim=claim.token).values_list("result", flat=True)
            if text not in mine:
                if mine:
                    raise StepRefused(
                        f"{self._step(name)} is recorded already, with another result; give it another name"
                    )
                raise LeaseLost(
                    f"{claim.operations.label} {claim.pk}: the claim on it has ended; step {name!r} is not recorded"
                )
        if self._done is not None:
            self._done[name] = text
        self.recorded += 1
        return json.loads(text)

    def _recorded(self, name: str, text: str) -> bool:
        """Record a step, in an outage of the database again and again: otherwise its call would be repeated.

        A worker does so for as long as its claim may hold. The request of a program is answered at once.
        """
        claim = cast("Claim", self._claim)
        record = retried(claim.operations, _record)
        for pause in chain((0.1, 0.2, 0.5), repeat(1.0)):
            try:
                return record(claim, name, text, in_time=self._in_time)
            except DatabaseError as error:
                connection = claim.operations.connection
                late = self._in_time or time.monotonic() + pause > claim.deadline
                if late or connection.in_atomic_block or not is_outage(error):
                    raise
            Event().wait(pause)
            claim.operations.connection.close_if_unusable_or_obsolete()
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def _using(self, name: str) -> Iterator[None]:
        """Let a name be used once, unless its call fails: then nothing is recorded, and the handler may repeat it."""
        self._check_name(name)
        if (within := running_part.get()) is not None and within[0] is self._claim:
            raise StepRefused(
                f"{self._step(name)} is called within step {within[1]!r}; a step contains no other one: call it after"
            )
        with self._lock:
            if name in self._used:
                raise StepRefused(
                    f"{self._step(name)} is used twice in one attempt; give each step a name of its own, "
                    f"such as {name + '-2'!r}"
                )
            self._used.add(name)
        try:
            yield
        except BaseException:
            self._used.discard(name)
            raise

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= STEP_LENGTH:
            raise StepRefused(f"{name!r:.200} is no name of a step; use 1 to {STEP_LENGTH} printable characters")

    def check_place(self, name: str) -> None:
        """Raise ``StepRefused`` if the record would not be committed before the step returns."""
        claim = self._claim
        blocks: Any = claim.operations.connection.atomic_blocks
        # The transaction of a test stands for none, as for Django's own durable transactions.
        if claim.state.atomic or (blocks and not blocks[-1]._from_testcase):
            where = f"an atomic state ({claim.state.name})" if claim.state.atomic else "a transaction"
            raise StepRefused(
                f"{self._step(name)} is called in {where}, which could undo its record; call it outside of a "
                "transaction, in a state that is not atomic"
            )

    def _refuse_on_loop(self, name: str) -> None:
        if has_loop():
            raise StepRefused(f"{self._step(name)} is called on an event loop; use `await ....stator.astep()` there")

    @contextmanager
    def _running(self, name: str) -> Iterator[None]:
        """Have the context of a call name the step, and the progress of the attempt unless the handler says its own."""
        claim = self._claim
        said = REACHED.of(claim)
        if said is None or said is self._said:
            self._said = Reached(len(self._done or ()), None, f"step {name} runs")
            REACHED.note(claim, self._said)
        token = running_part.set((claim, name))
        try:
            yield
        finally:
            running_part.reset(token)

    def _step(self, name: str) -> str:
        return f"{self._claim.operations.label} {self._claim.pk}: step {name!r}"

    def _json(self, name: str, value: object) -> str:
        """Return the result as JSON text; raise ``StepRefused`` if it cannot be recorded."""
        if iscoroutine(value):
            value.close()
            raise StepRefused(f"{self._step(name)} returned a coroutine; use `await ....stator.astep()` for it")
        try:
            text = ENCODER.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise StepRefused(f"{self._step(name)} returned what JSON cannot express: {error}") from error
        limit = self._claim.operations.settings.PAYLOAD_LIMIT
        if len(text) > limit:
            raise StepRefused(
                f"{self._step(name)} returned {len(text):,} bytes as JSON; the most is {limit:,} (PAYLOAD_LIMIT)"
            )
        return text


# The steps of an attempt that has called one.
STEPS = Kept[Steps | None]("steps", None)
# The models whose attempts have used steps in this process, by label: the moves of the others pay nothing for them.
USED = set[str]()


class RecordsSteps:
    """What a claim has for its steps."""

    __slots__ = ()

    def own_steps(self: Any, *, in_time: bool = False) -> Steps:
        """Return the steps of the attempt; ``in_time``: they are recorded only until the lease runs out."""
        steps = STEPS.of(self)
        if steps is None:
            steps = Steps(self, in_time=in_time)
            STEPS.note(self, steps)
        return steps


def _recorded(claim: HeldClaim) -> QuerySet[Step]:
    row = claim.operations.division.anywhere.filter(pk=claim.pk)
    return steps_of_visit(row, str(claim.pk), claim.life)


def _read(claim: HeldClaim) -> list[Row]:
    """Return the names and results of the steps of the visit, and the number of the visit if they have it."""
    operations = claim.operations
    shape = operations.model, operations.alias, operations.part is None
    statement = _statements.get(shape, lambda: _reading(operations.division.template))
    values = {**_of_claim(claim), "part": operations.part}
    return _send(operations, operations.connection, statement, values)


def _reading(operations: "Operations") -> Statement:
    row = operations.division.anywhere.filter(**key_lookups(operations.model))
    return selecting(_steps_among(row).values_list("name", "result", "visit"))


def _note_visit(claim: HeldClaim) -> None:
    """Write the visit of steps by a worker of version 1.1, which would not be found when the visit goes on."""
    _recorded(claim).filter(visit=None).update(visit=claim.life.visit, life=claim.life.number)


def _steps_among(row: QuerySet[Model]) -> QuerySet[Step]:
    return steps_of_visit(row, Parameter("key", CharField()), _LIFE)


def _of_claim(claim: HeldClaim) -> dict[str, object]:
    life, key = claim.life, str(claim.pk)
    of_life = {name: getattr(life, name) for name in _Life._fields}
    return {**key_values(claim.operations.model, claim.pk), "key": key, **of_life}


def _record(claim: HeldClaim, name: str, text: str, *, in_time: bool) -> bool:
    """Insert a step; return False if the claim has ended or the step is there."""
    operations = claim.operations
    # Looked up once: on SQLite, each lookup takes a fiftieth of the time of a step.
    connection = operations.connection
    if not is_one_statement(connection):
        return _record_in_two(claim, name, text, in_time=in_time)
    # The time in the zone of the columns is part of the text where the database does not know zones.
    zone = seconds_ahead(connection) if capabilities_of(connection).clock_in_utc else 0
    shape = operations.model, operations.alias, operations.part is None, in_time, zone
    statement = _statements.get(shape, lambda: _inserting(operations.division.template, in_time=in_time))
    values = {
        **_of_claim(claim), "token": claim.token,
        "state": claim.state.value, "name": name, "result": text, "label": operations.label, "part": operations.part,
    }  # fmt: skip
    if _send(operations, connection, statement, values):
        return True
    # Where a conflict cannot tell a step of another wish from one of this, that is seen under a lock.
    return not _replaces(connection) and _record_in_two(claim, name, text, in_time=in_time)


def _send(
    operations: "Operations", connection: BaseDatabaseWrapper, statement: Statement, values: dict[str, object]
) -> list[Row]:
    params = statement.bind(connection, values)
    if capabilities_of(connection).writes_in_with:
        answer: list[Row] = operations.fetch(statement.text, params, WAITING, often=True)
        return answer
    # Not by ``fetch``, with which a worker waits for a lock only a moment: the step's call would be repeated.
    return fetch_all(connection, statement.text, params)


def is_one_statement(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the database inserts what it selects and locks, and says so; Citus plans no such statement."""
    return connection.features.can_return_columns_from_insert and not capabilities_of(connection).has_nodes


def _inserting(operations: "Operations", *, in_time: bool) -> Statement:
    """Return the INSERT of what is selected from the row of a claim, which it locks; it gives the name of the step."""
    ops, features = operations.connection.ops, operations.connection.features
    quote = ops.quote_name
    row = operations.division.anywhere.filter(**key_lookups(operations.model))
    column = operations.state_field
    source = {column.name: Parameter("state", column.django_class())}
    held = _held(row, source, Parameter("token", UUIDField()), in_time=in_time)
    name = Parameter("name", CharField())
    selected = held.exclude(Exists(_steps_among(row).filter(name=name).order_by())).values_list(
        Parameter("label", CharField()), Parameter("key", CharField()), "state_changed", name,
        column.named(), Parameter("result", TextField()), Now(), "state_attempts", "state_claim",
        _LIFE.number, _LIFE.visit,
    )  # fmt: skip
    fields: list[Any] = [Step._meta.get_field(name) for name in COLUMNS]
    columns = ", ".join(quote(field.column) for field in fields)
    # The lock makes the row wait for the commit: nobody ends the claim before, and then has the state attempted without
    # the step.
    lock = (
        f" {ops.for_update_sql(no_key=features.has_select_for_no_key_update)}" if features.has_select_for_update else ""
    )
    replaces = _replaces(operations.connection)
    conflict = OnConflict.UPDATE if replaces else OnConflict.IGNORE
    again = ops.on_conflict_suffix_sql(fields, conflict, COLUMNS, TARGET)
    table, life = quote(Step._meta.db_table), quote("life")
    other = f" WHERE {table}.{life} <> EXCLUDED.{life}" if replaces else ""
    return Statement.of(
        f"{ops.insert_statement(conflict)} {table} ({columns}) ",
        selecting(selected),
        f"{lock} {again}{other} RETURNING {quote('name')}",
    )


def _replaces(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an INSERT can replace a row under a condition: the step of another wish in the same visit."""
    return connection.features.supports_update_conflicts_with_target


def _held(row: QuerySet[Model], source: Mapping[str, object], token: object, *, in_time: bool) -> QuerySet[Model]:
    held = row.filter(**source, state_claim=token).order_by()
    return held.filter(state_locked_until__gt=Now()) if in_time else held


def _record_in_two(claim: HeldClaim, name: str, text: str, *, in_time: bool) -> bool:
    """Record a step by a lock and an INSERT, where an INSERT returns nothing or the planner refuses such a one."""
    operations = claim.operations
    with operations.handler_transaction():
        row = operations.division.anywhere.filter(pk=claim.pk)
        held = _held(row, operations.state_field.at(claim.state), claim.token, in_time=in_time)
        if not operations.lock_claimed([claim]) or _recorded(claim).filter(name=name).exists():
            return False
        # The unique constraint leaves no place beside the step of another wish.
        other = Step.objects.using(operations.alias).filter(model_label=operations.label, object_pk=str(claim.pk))
        other.filter(name=name, entered__in=row.values("state_changed")).delete()
        for attempt, changed in held.values_list("state_attempts", "state_changed"):
            # Not by way of Python where that may write the time differently; Citus refuses a subquery in VALUES.
            entered = changed if operations.capabilities.has_nodes else Subquery(held.values("state_changed"))
            Step.objects.using(operations.alias).create(
                model_label=operations.label, object_pk=str(claim.pk), entered=entered, name=name,
                state=claim.state.name, result=text, attempt=attempt, claim=claim.token, life=claim.life.number,
                visit=claim.life.visit,
            )  # fmt: skip
            return True
    return False
