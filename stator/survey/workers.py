"""The worker processes, and the objects that each runs now."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.models import F

from stator.graph.durations import seconds_of
from stator.models import StatorModel
from stator.querysets import rows_by_label
from stator.rows.news import NEWS
from stator.rows.readings import read
from stator.rows.workers import GRAPHS, LEFT, MAX_WORKERS, Worker, worker_of
from stator.survey.depths import held, held_by_label
from stator.survey.looks import Looks
from stator.survey.numbers import Held, Workers, WorkerStatus


def workers_of(using: str, models: Iterable[type[StatorModel]]) -> Workers:
    """Return the workers of a database with their held objects of some models; some statements for all models."""
    rows_of = rows_by_label(models, using)
    with Looks(using, [rows.model for rows in rows_of.values()]) as looks:
        claimed = looks.together(partial(held_by_label, rows_of))
        if claimed is None:
            claimed = {label: looks.at(rows.model, partial(held, rows), []) for label, rows in rows_of.items()}
        claims = [(label, one) for label, each in claimed.items() for one in each]
        return workers_holding(using, claims, looks)


def workers_holding(using: str, held: Iterable[tuple[str, Held]], looks: Looks) -> Workers:
    """Return the workers of a database with the claimed rows that they hold; one statement, and one for progress."""
    runs: dict[str, list[tuple[str, Held]]] = defaultdict(list)
    for label, one in held:
        runs[worker_of(one.token)].append((label, one))
    rows = Worker.objects.using(using)
    published = {"replaced": F("published__replaced"), "deaf": F("published__deaf"), "graphs": GRAPHS, "left": LEFT}
    shown = rows.with_status().annotate(**published).defer("published")
    workers: list[Any] = looks.at(Worker, lambda: list(shown.order_by("status", "-started", "pk")[:MAX_WORKERS]), [])
    ends = read("exits", using, [(worker.host, worker.replaced) for worker in workers], otherwise={})
    processes = [_process(worker, runs, ends.get((worker.host, worker.pid), "")) for worker in workers]
    status = Workers(processes, unread=looks.unread)
    _note_progress(using, status, looks)
    return status


def _note_progress(using: str, workers: Workers, looks: Looks) -> None:
    """Read how far the attempts are that are shown of the shown workers."""
    shown = [process.shown for process in workers.shown]
    claims = {(label, str(one.pk)): one.token for runs in shown for label, one in runs}
    news = [looks.at(kind.model, partial(kind.read, using, claims), {}) for kind in NEWS if claims]
    said = {key: shown for each in news for key, shown in each.items()}
    for process in workers.shown if said else ():
        process.runs = [(label, replace(one, progress=said.get((label, str(one.pk))))) for label, one in process.runs]


def _process(worker: Worker, runs: dict[str, list[tuple[str, Held]]], ending: str) -> WorkerStatus:
    status_of: Any = worker
    # A silent worker is not known to be up any more.
    until = status_of.stopped or (status_of.heartbeat if status_of.status == "silent" else status_of.now)
    heard = seconds_of(status_of.now - status_of.heartbeat)
    since = seconds_of(until - status_of.started)
    return WorkerStatus(worker, status_of.status, since, heard, runs.get(worker.pk, []), status_of.deaf or {}, ending)
