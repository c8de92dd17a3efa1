"""The worker processes, and what they run, as commands show them."""

from stator.commands.answer import Figures, values_of
from stator.graph.durations import span
from stator.rows.keys import shown_key
from stator.survey.numbers import Held, Workers, WorkerStatus

# Characters of a bar.
BAR = 20


def reported(workers: Workers) -> list[Figures]:
    """Return the workers of a database for JSON, the latest first: alive, silent without a stop, or stopped."""
    latest = sorted(workers.processes, key=lambda process: process.worker.started, reverse=True)
    return [_reported(process) for process in latest]


def _run(label: str, one: Held) -> Figures:
    """Return one of the attempts that run longest, with its progress if it has said how far it is."""
    reached = one.progress.as_dict() if one.progress else None
    return {"model": label, "pk": shown_key(one.pk), "state": one.state, "seconds": one.running, "progress": reached}


def lines_of_progress(workers: Workers) -> list[str]:
    """Return a line for each shown attempt that has said how far it is, with a bar if it has said of how much."""
    lines = []
    for label, one in (run for process in workers.shown for run in process.shown):
        if (reached := one.progress) is not None:
            where = f"{label} {shown_key(one.pk)} in {one.state} for {span(one.running)}"
            lines.append(f"{_bar(reached.percent)} {where}: {reached.described}")
    return lines


def _bar(percent: int | None) -> str:
    filled = 0 if percent is None else BAR * percent // 100
    return f"[{'#' * filled}{'.' * (BAR - filled)}]"


def _reported(process: WorkerStatus) -> dict[str, object]:
    worker = process.worker
    return {
        "name": worker.name or worker.pk,
        **values_of(worker, "id", "host", "pid", "version", "database", "models", "started", "stopped"),
        **values_of(process, "status", "ending"),
        "heartbeat_age": process.heard,
        "running": len(process.runs),
        "runs": [_run(label, one) for label, one in process.shown],
        **values_of(worker, "handled", "lost"),
    }
