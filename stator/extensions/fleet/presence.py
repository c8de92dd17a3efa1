"""The row of this process in the table of workers: inserted at the start, then refreshed, closed at the end."""

import json
import logging
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from django.db import DatabaseError
from django.db.models import F, Q

from stator import __version__
from stator.db.interface import Operations, by_scope
from stator.db.locks import Locks
from stator.db.retry import is_of_remote
from stator.extensions.fleet.versions import graphs_published
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.workers import WORKER_ALIVE, WORKER_BEAT, Worker, name_of
from stator.scopes import Scope
from stator.signals import on_heartbeat, send_contained
from stator.statements import replacing, updating
from stator.worker.outage import Outages
from stator.worker.parts import WorkerPart
from stator.worker.serving import Serving
from stator.worker.worker import Worker as WorkerProcess

logger = logging.getLogger("stator.worker")

HOST_LENGTH = 255

# The most characters of JSON that a process publishes about itself.
PUBLISHED = 65_536

# Processes of this host that are looked at, if they were not heard of for long.
MAX_ENDED = 100

# The step that writes the row.
SHOW = "show"

# Seconds between refreshes of the rows in resting schemas. A worker counts as silent after ``WORKER_ALIVE``.
RESTING_BEAT = 20.0


def parts(worker: WorkerProcess) -> Iterator[WorkerPart]:
    """Yield the presence of a worker."""
    replaces = worker.replaces[0] if worker.replaces else 0
    published = partial(published_by, worker)
    yield WorkerPart(shown=Presence(worker.id, worker.operations, worker.figures, published, worker.serving, replaces))


class Presence:
    """One row in each database, or schema, of the process.

    ``figures`` returns how much it runs, has handled and has lost. ``published``
    returns what apps publish about it; that is written only when it changes. ``resting``: the schemas
    where the process has no work; their rows are refreshed less often, many in one statement. ``replaces``: the
    number of the process that it replaces.
    """

    def __init__(
        self,
        worker_id: str,
        operations: list[Operations],
        figures: Callable[[], dict[str, int]],
        published: Callable[[], dict[str, object]] = dict,
        resting: Serving | None = None,
        replaces: int = 0,
    ) -> None:
        self._id = worker_id
        self._replaces = replaces
        # The worker's own list, which changes if it works in many schemas.
        self._operations = operations
        self._resting = resting
        self._rested = float("-inf")
        self._locks = Locks(Worker._meta.label_lower)
        self._figures = figures
        self._published = published
        # The published text as it was last written.
        self._written: dict[Scope, dict[str, object]] = {}
        self._shown = float("-inf")

    def show(self) -> None:
        """Refresh the heartbeat of the rows unless that was done lately; one UPDATE for each."""
        now = time.monotonic()
        if now - self._shown < WORKER_BEAT or not self._locks.allow(SHOW):
            return
        if now - self._rested >= RESTING_BEAT:
            self._rested = now
            self._refresh_resting(heartbeat=Now())
        # A process that was taken for ended lives.
        self._refresh(self._gone, heartbeat=Now(), stopped=None)
        if not self._locks.held:
            self._shown = now

    def leave(self) -> None:
        """Record the end of the process."""
        self._refresh_resting(heartbeat=Now(), stopped=Now())
        self._refresh(heartbeat=Now(), stopped=Now())

    def _refresh_resting(self, **moments: Now) -> None:
        """Refresh the rows in resting schemas; insert those that are not there yet, or whose text has changed."""
        if self._resting is None:
            return
        outages, published = Outages(), self._published()
        groups: dict[tuple[str, tuple[str, ...], bool], list[Scope]] = defaultdict(list)
        for scope, labels in self._resting.labels().items():
            groups[scope.alias, tuple(labels), self._written.get(scope) == published].append(scope)
        for (alias, served, is_there), scopes in groups.items():
            if is_there:
                statement = updating(Worker.objects.using(alias).filter(pk=self._id), {**moments, **self._figures()})
            else:
                row = self._row(alias, list(served), published)
                statement = replacing(row, alias, ["models", "published", "heartbeat"])
            with outages.noted(alias), self._locks.tried(SHOW):
                self._resting.write(alias, [scope.path for scope in scopes], statement)
                self._written |= dict.fromkeys(scopes, published)
        outages.raise_first()

    def _refresh(self, find_gone: Callable[[str], list[str]] | None = None, **moments: Now | None) -> None:
        """Refresh the rows; ``find_gone`` reads, in the same transaction, the processes whose end is then noted."""
        outages, published = Outages(), self._published()
        for scope, group in by_scope(list(self._operations)).items():
            labels = sorted(operations.label for operations in group if not operations.lacking)
            with outages.noted(scope.alias), self._locks.tried(SHOW), _reached(), scope.enter():
                with group[0].transaction():
                    rows = Worker.objects.using(scope.alias)
                    changed = {} if self._written.get(scope) == published else {"published": published}
                    if not rows.filter(pk=self._id).update(models=labels, **changed, **moments, **self._figures()):
                        # The row is not there yet, or was pruned while the process was cut off.
                        rows.bulk_create([self._row(scope.alias, labels, published)], ignore_conflicts=True)
                    gone = find_gone(scope.alias) if find_gone else []
                # Noted after the commit, so that the text is written again after a rollback.
                self._written[scope] = published
                if gone:
                    # In a transaction of its own: whoever holds these rows does not keep this process from living.
                    with group[0].transaction():
                        rows.filter(pk__in=gone, stopped=None).update(stopped=F("heartbeat"))
        outages.raise_first()

    def _gone(self, alias: str) -> list[str]:
        """Return processes of this host that are gone without a word: one that was killed cannot say so."""
        others = Worker.objects.using(alias).filter(host=socket.gethostname()[:HOST_LENGTH], stopped=None)
        maybe = others.filter(Q(heartbeat__lte=columns.after(-WORKER_ALIVE)) | Q(pid=self._replaces))
        pids = maybe.exclude(pk=self._id).values_list("pk", "pid")[:MAX_ENDED]
        return [pk for pk, pid in pids if not _exists(pid)]

    def _row(self, alias: str, labels: list[str], published: dict[str, object]) -> Worker:
        return Worker(
            id=self._id,
            name=name_of(self._id),
            host=socket.gethostname()[:HOST_LENGTH],
            pid=os.getpid(),
            version=__version__,
            models=labels,
            database=alias,
            published=published,
            **self._figures(),
        )


def published_by(worker: object) -> dict[str, object]:
    """Return what is published about a worker: its graphs, the process that it replaces, what ``on_heartbeat`` adds.

    ``deaf``: why no notifications arrive, by database. Receivers that fail or say too much are left out.
    """
    columns = {operations.label: operations.state_field for operations in getattr(worker, "kinds", ())}
    graphs = {label: column.declared for label, column in columns.items()}
    left = {label: column.left for label, column in columns.items()}
    published = graphs_published(graphs, left) if graphs else {}
    if replaces := getattr(worker, "replaces", None):
        published["replaced"] = dict(zip(("pid", "exit_code"), replaces, strict=True))
    listeners = getattr(worker, "listeners", ())
    if deaf := {listener.alias: reason for listener in listeners if (reason := listener.trouble)}:
        published["deaf"] = deaf
    for receiver, answer in send_contained(on_heartbeat, worker):
        if answer is None or isinstance(answer, Exception):
            # Django logs the exception.
            continue
        if isinstance(answer, BaseException):
            logger.error("stator.receiver_failed", extra={"receiver": repr(receiver)}, exc_info=answer)
            continue
        try:
            size = len(json.dumps(answer))
        except (TypeError, ValueError):
            size = PUBLISHED + 1
        if isinstance(answer, dict) and size <= PUBLISHED:
            published |= answer
        else:
            name = getattr(receiver, "__qualname__", repr(receiver))
            remedy = f"return a dictionary of at most {PUBLISHED:,} characters of JSON"
            logger.warning("stator.not_published", extra={"receiver": name, "remedy": remedy})
    return published


def _exists(pid: int) -> bool:
    """Return whether this host has a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def _reached() -> Iterator[None]:
    """Leave out a schema whose node is away: nobody can read the row there, and the next beat writes it."""
    try:
        yield
    except DatabaseError as error:
        if not is_of_remote(error):
            raise
