"""What ``explain()`` says of the reasons that handlers gave."""

from collections.abc import Iterator

from django.db.models import Exists, Model, OuterRef, Q
from django.db.models.functions import Coalesce

from stator.extensions.problems.facts import Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.sentences import Said, reported
from stator.extensions.reports.models import reports_of
from stator.rows.state_column import state_field


def last_said(facts: Facts) -> Iterator[Said]:
    """Repeat the reason that the handler gave."""
    _, numbers = reported(facts)
    times = f" ({numbers['times']} times)" if numbers["times"] > 1 else ""
    yield f'Waiting because its handler said "{numbers["message"]}"{times}.', numbers


def _has_said(facts: Facts) -> bool:
    """Return whether its handler gave a reason to wait at its latest attempt."""
    latest = facts.row["state_attempted"] or facts.row["state_changed"]
    report = facts.report
    return report is not None and not report.error and report.state == facts.name and report.at >= latest


def _said_lately(model: type[Model]) -> dict[str, object]:
    """Return the lookups for the reason that a handler gave at the latest attempt; later attempts may not repeat it."""
    latest = Coalesce(OuterRef("state_attempted"), OuterRef("state_changed"))
    return {"error": "", "state": state_field(model).named(OuterRef), "at__gte": latest}


LAST_SAID = ProblemKind.of_one(
    last_said,
    after="backoff",
    holds=lambda facts: facts.rests and not facts.failed and _has_said(facts),
    rows=lambda many: Q(many.waiting, Exists(reports_of(many.model, many.using, **_said_lately(many.model)))),
    remedy="Check what it waits for; retry now to attempt it at once.",
)
