"""Checks for live workers, and for work that no worker does."""

from stator.commands.doctor.finding import FAIL, OK, WARN, Finding
from stator.commands.figures import bounded, shown
from stator.conf import load_settings
from stator.explain.notices import Notice, notices_of
from stator.graph.durations import span
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows import columns
from stator.rows.workers import WORKER_ALIVE
from stator.rows.workers import live_workers as alive

START = "start manage.py runstator for them"

# The most groups of objects that one finding names.
TOLD = 5


def expired_leases(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check for leases that ran out and were not reaped."""
    patience = 2 * load_settings().REAP_INTERVAL + 1
    late = {"state_claim__isnull": False, "state_locked_until__lte": columns.after(-patience)}
    found = {model._meta.label: bounded(OperatorQuerySet(model, using=alias).filter(**late)) for model in models}
    if expired := [f"{label} {shown(count)}" for label, count in found.items() if count]:
        message = f"expired more than {span(patience)} ago: {', '.join(expired)}"
        return Finding("leases", alias, FAIL, message, f"{START}, or unlock the objects")
    return Finding("leases", alias, OK, "no expired lease is left")


def live_workers(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that every model has a live worker; a failure if objects wait for one."""
    served = {label for worker in alive(alias) for label in worker.models}
    idle = [model for model in models if model._meta.label_lower not in served]
    waiting = [model._meta.label for model in idle if _needs_process(OperatorQuerySet(model, using=alias))]
    heard = f"no heartbeat in the last {span(WORKER_ALIVE)}"
    if waiting:
        message = f"objects wait, but no live worker serves {', '.join(waiting)}; {heard}"
        return Finding("workers", alias, FAIL, message, START)
    if idle:
        names = ", ".join(model._meta.label for model in idle)
        return Finding("workers", alias, WARN, f"no live worker serves {names}; {heard}", START)
    return Finding("workers", alias, OK, "every model has a live worker")


def served(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check that live workers can take what is first in line; a failure names what is wrong with each group."""
    found = [(model._meta.label, notice) for model in models for notice in notices_of(model, alias)]
    trouble = [each for each in found if not each[1].served and each[1].code != "no_worker"]
    if trouble:
        remedy = " ".join(dict.fromkeys(notice.remedy for _, notice in trouble[:TOLD]))
        return Finding("served", alias, FAIL, "; ".join(_told(trouble)), remedy)
    named = [each for each in found if each[1].served]
    return Finding("served", alias, OK, "; ".join(_told(named)) or "live workers serve all that is first in line")


def _told(found: list[tuple[str, Notice]]) -> list[str]:
    told = [
        f"{label}, {notice.group}: {notice.counted} ready. {notice.sentence.rstrip('.')}"
        for label, notice in found[:TOLD]
    ]
    return [*told, f"and {len(found) - TOLD} more"] if len(found) > TOLD else told


def _needs_process(rows: OperatorQuerySet) -> bool:
    """Return whether objects wait for a worker process; other workers, which a model knows itself, may serve them."""
    if not _has_work(rows):
        return False
    found = notices_of(rows.model, rows.db)
    return not found or any(notice.code == "no_worker" for notice in found)


def _has_work(rows: OperatorQuerySet) -> bool:
    states = [state.name for state in rows.model.state_graph.automatic_states]
    resting = rows.filter(state_ready=False, state_claim=None, state__in=states)
    due = resting.filter(state_next_attempt__lte=columns.after(0))
    return bool(rows.ready().exists() or due.exists())
