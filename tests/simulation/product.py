"""The statements of ``stator.db`` themselves, on SQLite with a simulated clock."""

from typing import Any
from uuid import UUID

from django.db import connection

from stator.conf import Settings
from stator.db import operations_for
from stator.db.chores import mark_ready
from stator.db.interface import OutcomeBatch, new_worker_id
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from tests.faults.events import Row
from tests.simulation import statements as ask
from tests.simulation.statements import INTERVAL, LEASE, MAX_CRASHES, Held
from tests.simulation.store import moment
from tests.simulation.workers import deadline
from tests.testapp.faults import Job, JobGraph

AUTOMATIC = [JobGraph.fresh, JobGraph.halfway]
SETTINGS = Settings(LEASE=LEASE, SHUTDOWN_TIMEOUT=LEASE / 2, MAX_RUNTIME=LEASE, MAX_CRASHES=MAX_CRASHES)
FRAMEWORK = [f"state_{name}" for name in Row.__dataclass_fields__ if name not in ("state", "key", "priority")]
FAILURE = describe(ValueError("as the schedule says"))
LIMIT = 100


class Product:
    """The rows of a managed model and the operations of a worker. To be made in a test with a database."""

    atomic = frozenset[str]()

    def __init__(self, rows: list[tuple[str | None, int]]) -> None:
        self.now = 0.0
        self.effects: list[Held] = []
        self._operations = operations_for(Job, SETTINGS, new_worker_id())
        connection.ensure_connection()
        connection.connection.create_function("strftime", 2, self._clock)
        Job.objects.all().delete()
        Job.objects.bulk_create(Job(pk=pk) for pk, _ in enumerate(rows, 1))

    def _clock(self, form: str, when: str) -> str:
        if (form.replace("%%", "%"), when.lower()) != ("%Y-%m-%d %H:%M:%f", "now"):
            raise ValueError(f"strftime({form!r}, {when!r}) is not what Now() asks")
        return f"{moment(self.now):%Y-%m-%d %H:%M:%S.%f}"[:-3]

    def rows(self) -> dict[int, Row]:
        """Every row as it is now."""
        return {pk: Row(*values) for pk, *values in Job.objects.values_list("pk", "state", *FRAMEWORK)}

    def answer(self, request: Any, actor: str, monotonic: float) -> Any:
        """Execute a statement and return its reply."""
        return getattr(self, f"do_{type(request).__name__.lower()}")(request, monotonic)

    def do_claim(self, request: ask.Claim, monotonic: float) -> list[Held]:
        claims = self._operations.claim(AUTOMATIC, request.limit, token=request.token, crashes=request.crashes)
        held = [
            Held(one.pk, one.token, one.state.name, one.version, one.attempt, deadline(monotonic), one)
            for one in claims
        ]
        return sorted(held, key=lambda one: one.pk)

    def do_start(self, request: ask.Start, monotonic: float) -> None:
        self.effects.append(request.held)

    def do_renew(self, request: ask.Renew, monotonic: float) -> bool:
        return not self._operations.renew([request.held.claim])

    def do_record(self, request: ask.Record, monotonic: float) -> bool:
        ended = [(request.held.claim, _outcome(request.outcome))]
        return not self._operations.record_batch(OutcomeBatch.of(ended), again=request.again).lost

    def do_handback(self, request: ask.HandBack, monotonic: float) -> None:
        self._operations.release_token(request.token)

    def do_reap(self, request: ask.Reap, monotonic: float) -> None:
        self._operations.reap(LIMIT)

    def do_markready(self, request: ask.MarkReady, monotonic: float) -> None:
        mark_ready(self._operations, LIMIT)

    def move(self, pk: int, state: str) -> None:
        """Move a row by hand."""
        Job.stator.filter(pk=pk).move(state)

    def unlock(self, pk: int) -> None:
        """End the claim of a row."""
        Job.stator.filter(pk=pk).unlock()

    def retry(self, pk: int) -> None:
        """Have a row attempted now."""
        Job.stator.filter(pk=pk).retry()

    def delete(self, pk: int) -> None:
        """Delete a row."""
        Job.objects.filter(pk=pk).delete()

    def save(self, held: Held) -> None:
        """Save the instance that a handler was given."""
        if Job.objects.filter(pk=held.pk).exists():
            held.claim.instance.note = "saved"
            held.claim.instance.save()


class Both:
    """The product and the model of it, led through the same schedule; they must agree after every statement."""

    atomic = frozenset[str]()

    def __init__(self, make_store: Any, rows: list[tuple[str | None, int]]) -> None:
        self._model, self._product = make_store(rows), Product(rows)
        self._held: dict[tuple[int, UUID], Held] = {}
        self.effects = self._product.effects

    @property
    def now(self) -> float:
        """The time of both."""
        return self._product.now

    @now.setter
    def now(self, seconds: float) -> None:
        self._product.now = self._model.now = seconds

    def rows(self) -> dict[int, Row]:
        """Every row as it is now, in both."""
        found = self._product.rows()
        assert found == {pk: _without_key(row) for pk, row in self._model.rows().items()}
        return found

    def answer(self, request: Any, actor: str, monotonic: float) -> Any:
        """Execute a statement in both; return the reply of the product."""
        replies = [store.answer(request, actor, monotonic) for store in (self._model, self._product)]
        told = [
            [(one.pk, one.state, one.attempt) for one in reply] if isinstance(reply, list) else reply
            for reply in replies
        ]
        assert told[0] == told[1], request
        self._model.effects.clear()
        return replies[1]

    def __getattr__(self, name: str) -> Any:
        """Manual actions are applied to both stores."""
        return lambda *given: [getattr(store, name)(*given) for store in (self._model, self._product)]


def _without_key(row: Row) -> Row:
    return Row(**{**{name: getattr(row, name) for name in Row.__dataclass_fields__}, "key": None, "priority": 0})


def _outcome(outcome: ask.Outcome) -> Outcome:
    if outcome.released:
        return Released()
    if outcome.to:
        return Moved(JobGraph.states[outcome.to])
    return Waiting(INTERVAL, FAILURE if outcome.failed else None)
