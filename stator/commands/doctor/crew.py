"""Checks for models without a live worker, and for objects that no worker serves."""

from stator.commands.doctor.finding import FAIL, OK, WARN, Finding
from stator.explain.notices import Notice, notices_of
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.workers import WORKER_ALIVE
from stator.rows.workers import live_workers as alive

START = "start manage.py runstator for them"

# The most groups of objects that one finding names.
LISTED = 5


def live_workers(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that every model has a live worker; objects that wait for one are a trouble of their own."""
    served = {label for worker in alive(alias) for label in worker.models}
    idle = [model for model in models if model._meta.label_lower not in served]
    if idle:
        names = ", ".join(model._meta.label for model in idle)
        heard = f"no heartbeat in the last {span(WORKER_ALIVE)}"
        return Finding("workers", alias, WARN, f"no live worker serves {names}; {heard}", START)
    return Finding("workers", alias, OK, "every model has a live worker")


def served(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that live workers can take the objects that are next; a failure names what is wrong with each group."""
    found = [(model._meta.label, notice) for model in models for notice in notices_of(model, alias)]
    trouble = [each for each in found if not each[1].served and each[1].code != "no_worker"]
    if trouble:
        remedy = " ".join(dict.fromkeys(notice.remedy for _, notice in trouble[:LISTED]))
        return Finding("served", alias, FAIL, "; ".join(_lines(trouble)), remedy)
    named = [each for each in found if each[1].served]
    return Finding("served", alias, OK, "; ".join(_lines(named)) or "live workers serve all objects that are next")


def _lines(found: list[tuple[str, Notice]]) -> list[str]:
    told = [
        f"{label}, {notice.group}: {notice.counted} ready. {notice.sentence.rstrip('.')}"
        for label, notice in found[:LISTED]
    ]
    return [*told, f"and {len(found) - LISTED} more"] if len(found) > LISTED else told
