"""Why objects do not move: :func:`explain` for one object, :func:`explain_counts` for many."""

from collections.abc import Iterator

from django.db.models import Case, CharField, Count, Model, Q, QuerySet, Value, When

from stator.explain.facts import gather
from stator.explain.kinds import KINDS, all_kinds, kind_of
from stator.explain.many import Many
from stator.explain.problem import Problem
from stator.rows.meta import function_of, options_of, owner_of, written_to


def explain(model: type[Model], pk: object, using: str | None = None) -> list[Problem]:
    """Return the reasons why an object is not moving, the most decisive first; never empty; up to eight statements."""
    facts = gather(model, pk, using, further=[kind.fact for kind in all_kinds() if kind.fact])
    if facts is None:
        sentence = f"{model._meta.label} {pk} is gone: there is no such row."
        return [Problem("gone", sentence, remedy=kind_of("gone").remedy)]
    return [reason for kind in all_kinds() for reason in kind.reasons(facts)]


def explain_counts(queryset: QuerySet[Model]) -> dict[str, int]:
    """Return the number of rows by the code of their first reason, most first; in a handful of statements."""
    owner = owner_of(queryset.model)
    many = Many.of(owner, written_to(queryset))
    first = Case(*(When(rows, then=Value(code)) for code, rows in _conditions(many)), output_field=CharField())
    rows = many.rows.filter(pk__in=queryset.order_by().values("pk")).annotate(stator_reason=first)
    counts = rows.values_list("stator_reason").annotate(stator_count=Count("pk"))
    return dict(counts.order_by("-stator_count"))


def _conditions(many: Many) -> Iterator[tuple[str, Q]]:
    """Yield the codes with their rows; codes of the model itself say more than that no worker process is live."""
    for kind in KINDS:
        if kind.code == "no_worker" and (own := function_of(options_of(many.model).reasons)):
            yield from own(many.using).items()
        if kind.rows is not None:
            yield kind.code, kind.rows(many)
