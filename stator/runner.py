"""StatorRunner: a worker for programs and tests."""

from collections.abc import Iterable, Sequence
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass, field, fields

from asgiref.sync import async_to_sync
from django.db import connections, router

from stator.conf import Settings, load_settings
from stator.db import chores, operations_for, operations_in
from stator.db.claims import claim_one
from stator.db.interface import Claim, Ended, Operations, new_worker_id
from stator.db.transactions import contained
from stator.extensions.stats.models import Stats
from stator.graph.outcomes import Outcome
from stator.models import StatorModel
from stator.rows.claimable import Crashes
from stator.rows.meta import by_database, home_of, managed, owner_of
from stator.rows.workers import give_name
from stator.scopes import PATHS, Scope, entering
from stator.seams import Around
from stator.signals import on_schedule
from stator.worker.announcements import tell
from stator.worker.around import calls_of
from stator.worker.attempts import grouped
from stator.worker.dispatcher import lanes_of
from stator.worker.duties import MARK_READY, REAP, SETTLE, When, duties_of
from stator.worker.executor import attempt_async, attempt_sync
from stator.worker.scheduler import send_in
from stator.worker.serving import Served
from stator.worker.startup import Scopes, models_by_path
from stator.worker.worker import Summary, Worker, WorkerOptions

__all__ = [
    "StatorModel",
    "StatorRunner",
    "Stats",  # stator.extensions.stats
    "Summary",
]


@dataclass(eq=False, repr=False)
class StatorRunner(WorkerOptions):
    """A worker for the given models: :meth:`run` works until stopped, :meth:`run_single_cycle` does one round.

    ``lock_expiry`` is the lease; ``run_for`` and the intervals are seconds. Arguments that are None come from the
    settings.
    """

    models: Iterable[type[StatorModel]] | None = None
    concurrency: int | None = None
    concurrency_per_model: int | None = None
    liveness_file: str | None = None  # stator.extensions.watchdog
    schedule_interval: float | None = None
    delete_interval: float | None = None
    lock_expiry: float | None = None
    run_for: float = 0
    _: KW_ONLY
    database: str | None = None
    shutdown_timeout: float | None = None
    # The schemas of PostgreSQL that it serves; None: the setting's schemas.
    schemas: Sequence[str] | None = None  # stator.extensions.schemas
    # The scopes that it serves, once ``runstator`` has looked.
    scopes: Scopes | None = None

    handled: dict[str, int] = field(default_factory=dict, init=False)
    # What a single cycle does around handlers, besides the extensions.
    around: Sequence[Around] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.models = managed(StatorModel.subclasses if self.models is None else self.models)

    @property
    def _managed(self) -> list[type[StatorModel]]:
        # A program may assign others.
        return list(self.models or ())

    def run(self) -> Summary:
        """Work until a signal arrives, ``run_for`` is over or, with ``until_idle``, nothing is ready or running.

        Raises ``RuntimeError`` within a transaction of this thread, as in a ``TestCase`` of Django: the worker's
        connections would not see its rows, or would wait for it.
        """
        for alias in by_database(self._managed, self.database):
            if connections[alias].in_atomic_block:
                raise RuntimeError(
                    f"StatorRunner.run() cannot work within a transaction on {alias!r}: its connections do not see "
                    "what is not committed; in a TestCase use stator.testing.drain(), or a TransactionTestCase"
                )
        summary = self.worker().run()
        self.handled = summary.handled
        return summary

    def worker(self) -> Worker:
        """Return the worker that :meth:`run` runs, not yet started."""
        return Worker(
            self._managed,
            self.settings(),
            alias=self.database,
            scopes=self.scopes_to_serve(),
            find=self._served(),
            run_for=self.run_for,
            liveness_file=self.liveness_file,  # stator.extensions.watchdog
            **{option.name: getattr(self, option.name) for option in fields(WorkerOptions)},
        )

    def scopes_to_serve(self) -> Scopes | None:
        """Return the scopes that it serves, with their models; None for each database and all models."""
        if self.scopes is None and (served := self._served()):
            return served.scopes()
        return self.scopes

    def _served(self) -> Served | None:
        chosen: Sequence[str] | None = None
        chosen = self.schemas  # stator.extensions.schemas
        served: Served | None = PATHS.served(self._managed, self.database, chosen)
        return served

    def settings(self) -> Settings:
        """Return the project's settings, overridden by the arguments of this runner."""
        given = {
            "CONCURRENCY": self.concurrency,
            "CONCURRENCY_PER_MODEL": self.concurrency_per_model,
            "SCHEDULE_INTERVAL": self.schedule_interval,
            "LEASE": self.lock_expiry,
            "SHUTDOWN_TIMEOUT": self.shutdown_timeout,
        }
        return load_settings(**{name: value for name, value in given.items() if value is not None})

    def databases_of(self, model: type[StatorModel]) -> list[str]:
        """Return the aliases of the databases where it serves a model; for receivers of ``on_schedule``."""
        return [self.database or router.db_for_write(model)] if model in self._managed else []

    def run_single_cycle(self) -> int:
        """Run deletions and timeouts, and attempt every ready or due row once; return how many were attempted.

        It works in the calling thread on that thread's connection, so it also works inside a test's transaction. Errors
        of handlers are recorded, not raised. It never sleeps.
        """
        worker_id, settings = new_worker_id(), self.settings()
        if self.name:
            # Without a name, each cycle counts as another worker, so that limits per worker do not stop a test.
            give_name(worker_id, self.name)
        databases = {alias for model in self._managed for alias in self.databases_of(model)}
        served = models_by_path(self._managed, self.scopes_to_serve())
        send_in(served, on_schedule, self, databases=sorted(databases))
        attempts: list[list[Claim]] = []
        for path, models in served.items():
            with entering(path):
                for model in models:
                    scope = Scope(self.database or router.db_for_write(model), path)
                    operations = operations_in(scope, model, settings, worker_id)
                    for part in operations.parts_with(*chores.rows_to_watch(operations, 0)):
                        _do_duties(part)
                    attempts += grouped(_claim_all(operations))
        for claims in attempts:
            _attempt(claims, self.around)
            label = claims[0].operations.label
            self.handled[label] = self.handled.get(label, 0) + len(claims)
        return sum(map(len, attempts))


def attempt_row(row: StatorModel, around: Sequence[Around] = ()) -> Outcome:
    """Attempt one row now in the calling thread, due or not; raise ``ValueError`` if nothing ever attempts it.

    ``around``: what is done around its handler, besides the extensions.
    """
    operations = operations_for(owner_of(type(row)), load_settings(), new_worker_id(), home_of(row))
    claim = claim_one(operations, row.pk)
    if claim is None:
        label = f"{operations.label} {row.pk}"
        raise ValueError(f"{label} cannot be attempted: it is gone, or its state is terminal or externally progressed")
    return _attempt([claim], around)[0][1]


def _do_duties(operations: Operations) -> None:
    for duty in (REAP, SETTLE, *duties_of(When.PASS), MARK_READY):
        while duty.needed(operations) and duty.call(operations):
            pass


def _claim_all(operations: Operations) -> list[Claim]:
    """Claim everything that is ready before anything is attempted, so that no row takes two steps."""
    claims: list[Claim] = []
    for lane in lanes_of(operations):
        for crashes in Crashes:
            # A claim is one of the dearest statements to compose, and mostly finds nothing here.
            ready = operations.ready(lane.states).filter(operations.crashed(crashes))
            while ready.exists() and (
                claimed := operations.claim(lane.states, operations.settings.BATCH_SIZE, crashes=crashes)
            ):
                claims += claimed
    return claims


def _attempt(claims: list[Claim], around: Sequence[Around]) -> list[Ended]:
    operations = claims[0].operations
    with operations.scope.enter():
        with contained(operations):
            attempt = async_to_sync(attempt_async) if claims[0].state.is_async else attempt_sync
            # An asynchronous handler would else leave its context to the caller.
            attempted = copy_context().run(attempt, claims, calls_of(operations, claims[0].state, around))
        if attempted.ended:
            tell(operations, operations.record(attempted.ended), claims)
    for claim in claims:
        claim.free()
    return [*attempted.ended, *attempted.recorded]
