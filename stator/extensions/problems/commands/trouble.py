"""Objects of a model that need attention, the worst first, and the lines of a problem."""

from collections.abc import Iterable, Iterator

from stator.extensions.problems.surveyed import Surveyed
from stator.graph.durations import seconds_of
from stator.querysets import OperatorQuerySet
from stator.rows.columns import stayed
from stator.rows.state_column import state_field
from stator.survey.conditions import parts_of

# Seconds that a lease may be over before its object is listed.
LATE = 10.0


def troubled(one: Surveyed, limit: int) -> list[tuple[object, str, str, float]]:
    """Return up to ``limit`` objects of a model, each once; objects that only people can help come first.

    Each has its key, its trouble in a word or two, its state, and for how many seconds it has been in that.
    """
    rows: OperatorQuerySet = OperatorQuerySet(one.model, using=one.using)
    kinds: dict[object, str] = {}
    for what, pks in _sources(one, rows, limit):
        for pk in pks:
            kinds.setdefault(pk, what)
        if len(kinds) >= limit:
            break
    chosen = list(kinds)[:limit]
    field = state_field(one.model)
    there = rows.filter(pk__in=chosen).annotate(stator_age=stayed()).values_list("pk", field.name, "stator_age")
    by_pk = {pk: (field.name_of(value), seconds_of(age)) for pk, value, age in there}
    return [(pk, kinds[pk], *by_pk[pk]) for pk in chosen if pk in by_pk]


def _sources(one: Surveyed, rows: OperatorQuerySet, limit: int) -> Iterator[tuple[str, Iterable[object]]]:
    # By the names that the survey has found: a search for other states would read all ready rows.
    yield "unknown state", _pks("unknown", rows.in_state(*one.unknown_states), limit)
    yield "quarantined", _pks("quarantined", rows, limit)
    yield "lease ran out", [held.pk for held in one.depths.held if held.late > LATE]
    yield "failing", [pk for group in one.groups for pk in group.failing]
    yield "stuck", [stuck.pk for stuck in one.depths.stuck]
    yield "overdue", _pks("overdue", rows, limit)


def _pks(condition: str, rows: OperatorQuerySet, limit: int) -> list[object]:
    return [pk for part in parts_of(condition, rows) for pk in part.values_list("pk", flat=True)[:limit]]
