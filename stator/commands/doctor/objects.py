"""Checks for objects that need attention, and for pauses that may be forgotten."""

from django.db.models import Q

from stator.commands.doctor.finding import OK, WARN, Finding
from stator.commands.figures import failing
from stator.graph.durations import span
from stator.models import StatorModel
from stator.overview.depths import depths, told
from stator.querysets import OperatorQuerySet
from stator.rows import columns
from stator.rows.pauses import MOST_PAUSES, Pause

# A pause without an end may be forgotten if it is older than this.
FORGOTTEN = 86400.0


def in_trouble(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check for objects that are quarantined, stuck or failing."""
    said = list(filter(None, (_said(OperatorQuerySet(model, using=alias)) for model in models)))
    if said:
        remedy = "run manage.py stator explain app.Model to list them with their reasons"
        return Finding("objects", alias, WARN, "; ".join(said), remedy)
    return Finding("objects", alias, OK, "none is quarantined, stuck or failing")


def _said(rows: OperatorQuerySet) -> str:
    if not rows.exists():
        return ""
    found = depths(rows)
    counts = {"quarantined": found.quarantined, "stuck": found.stuck_count, "failing": failing(rows)}
    words = ", ".join(f"{told(count)} {name}" for name, count in counts.items() if count)
    return f"{rows.model._meta.label}: {words}" if words else ""


def forgotten_pauses(alias: str, models: list[type[StatorModel]]) -> Finding:
    """Check for old pauses without an end."""
    labels = [model._meta.label_lower for model in models]
    old = Q(until=None, created__lte=columns.after(-FORGOTTEN), model_label__in=labels)
    found = Pause.objects.using(alias).filter(old).order_by("created")[:MOST_PAUSES]
    if said := [f"{pause} by {pause.actor or 'nobody'} ({pause.reason or 'no reason'})" for pause in found]:
        message = f"older than {span(FORGOTTEN)} and without an end: {'; '.join(said)}"
        return Finding(
            "pauses", alias, WARN, message, "ask the person who paused it, then run manage.py stator resume app.Model"
        )
    return Finding("pauses", alias, OK, "none is old and without an end")
